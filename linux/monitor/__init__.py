"""Notifications of the kernel: a monitor that reads them, and the events that they are.

Public: `Monitor` and the groups that it listens to; events in `linux.monitor.events`.
"""

from linux.monitor.monitor import ADDRESSES as ADDRESSES
from linux.monitor.monitor import LINKS as LINKS
from linux.monitor.monitor import NEIGHBOURS as NEIGHBOURS
from linux.monitor.monitor import ROUTES as ROUTES
from linux.monitor.monitor import SETTINGS as SETTINGS
from linux.monitor.monitor import Monitor as Monitor
