"""How much a workload may send and receive, and how its packets are marked: its `qosControls`.

    ingressBandwidth 10M, ingressBurst 4Gi     a token bucket on the host's end of its veth
    egressBandwidth                            the same on a device that its packets go through
    ingressPacketRate, ingressMaxConnections   rules of its chains
    dscp EF                                    a rule for what leaves the cluster

What lies outside the range that the kernel or Calico takes is set to the range's end, and what
lacks the value that it goes with is left out, as of a pod's annotations.

Source: https://docs.tigera.io/calico/latest/networking/configuring/qos-controls.
Tested in tests/libcalico/test_traffic_limits.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from libcalico.conversion.limit_annotations import (
    DEFAULT_BURST,
    DEFAULT_PACKET_BURST,
    MOST_CONNECTIONS,
    MOST_PACKETS,
)
from libcalico.model.resources.endpoint import QoSControls
from libcalico.model.validation.network_values import dscp_number


@dataclass(frozen=True, slots=True)
class Bucket:
    """A token bucket: `rate` and `peak` in bytes a second (peak 0: none), `burst` in bytes.

    `least_burst`: bytes that go at once at the peak; at least a packet's.
    """

    rate: int
    burst: int
    peak: int = 0
    least_burst: int = 0


@dataclass(frozen=True, slots=True)
class PacketRate:
    """Packets a second, after a first `burst`."""

    rate: int
    burst: int


@dataclass(frozen=True, slots=True)
class ChainLimits:
    """What the workload's chains limit; 0 connections: any number."""

    ingress: PacketRate | None = None
    egress: PacketRate | None = None
    ingress_connections: int = 0
    egress_connections: int = 0


@dataclass(frozen=True, slots=True)
class TrafficLimits:
    """`receives` and `sends` as the workload sees it; `dscp` None: packets keep theirs."""

    receives: Bucket | None = None
    sends: Bucket | None = None
    chains: ChainLimits | None = None
    dscp: int | None = None


UNLIMITED = TrafficLimits()


def traffic_limits(controls: QoSControls | None) -> TrafficLimits:
    """What a stored endpoint asks for."""
    if controls is None:
        return UNLIMITED
    chains = ChainLimits(
        _packets(controls.ingressPacketRate, controls.ingressPacketBurst),
        _packets(controls.egressPacketRate, controls.egressPacketBurst),
        _within(controls.ingressMaxConnections, MOST_CONNECTIONS),
        _within(controls.egressMaxConnections, MOST_CONNECTIONS),
    )
    return TrafficLimits(
        _bucket(
            controls.ingressBandwidth,
            controls.ingressBurst,
            controls.ingressPeakrate,
            controls.ingressMinburst,
        ),
        _bucket(
            controls.egressBandwidth,
            controls.egressBurst,
            controls.egressPeakrate,
            controls.egressMinburst,
        ),
        None if chains == ChainLimits() else chains,
        None if controls.dscp is None else dscp_number(controls.dscp),
    )


def _bucket(rate: int, burst: int, peak: int, least_burst: int) -> Bucket | None:
    """Of bits a second and bits, but for the last, which is in bytes as it is stored."""
    if rate < 8:
        return None
    faster = peak if peak > rate else 0
    return Bucket(
        rate // 8,
        max(burst, 0) // 8 or DEFAULT_BURST // 8,
        faster // 8,
        least_burst if faster else 0,
    )


def _packets(rate: int, burst: int) -> PacketRate | None:
    if rate <= 0:
        return None
    return PacketRate(min(rate, MOST_PACKETS), _within(burst, MOST_PACKETS) or DEFAULT_PACKET_BURST)


def _within(value: int, most: int) -> int:
    return min(max(value, 0), most)
