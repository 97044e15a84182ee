"""Notifications of the kernel: a monitor that reads them, and the events that they are.

Public: `Monitor` and the groups that it listens to; events in `linux.monitor.events`.
"""

from linux.monitor.monitor import (
    ADDRESSES,
    EVERYTHING,
    LINKS,
    NEIGHBOURS,
    ROUTES,
    SETTINGS,
    Monitor,
)

__all__ = ["ADDRESSES", "EVERYTHING", "LINKS", "NEIGHBOURS", "ROUTES", "SETTINGS", "Monitor"]
