"""Queueing disciplines of links: token buckets, and ways through another link."""

from linux.traffic_control.queues import Queue as Queue
from linux.traffic_control.queues import TokenBucket as TokenBucket
from linux.traffic_control.queues import bucket as bucket
from linux.traffic_control.queues import detour as detour
from linux.traffic_control.queues import dump as dump
from linux.traffic_control.queues import no_bucket as no_bucket
from linux.traffic_control.queues import no_detour as no_detour
from linux.traffic_control.queues import ticks as ticks
