"""Packed netlink: many messages in one send, answers matched by sequence, errors as values.

Public: `Socket`, `Result`, `open_in_netns`, `Message` helpers. See `wire.py` for building.
"""

from linux.netlink.answers import Result
from linux.netlink.socket import NETLINK_NETFILTER, NETLINK_ROUTE, Socket, open_in_netns
from linux.netlink.wire import Attributes, attribute, message, nest, parse_attributes, text, u32

__all__ = [
    "NETLINK_NETFILTER",
    "NETLINK_ROUTE",
    "Attributes",
    "Result",
    "Socket",
    "attribute",
    "message",
    "nest",
    "open_in_netns",
    "parse_attributes",
    "text",
    "u32",
]
