"""Packed netlink: many messages in one send, answers matched by sequence, errors as values.

Public: `Socket`, `Result`, `open_in_netns`. See `wire.py` for building messages.
"""

from linux.netlink.answers import Result
from linux.netlink.socket import NETLINK_NETFILTER, Socket, open_in_netns

__all__ = ["NETLINK_NETFILTER", "Result", "Socket", "open_in_netns"]
