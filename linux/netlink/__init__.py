"""Packed netlink: many messages in one send, answers matched by sequence, errors as values.

Public: `Socket`, `Result`, `open_in_netns`, `Message` helpers. See `wire.py` for building.
"""

from linux.netlink.wire import Attributes, attribute, message, nest, parse_attributes, text, u32
from linux.netlink.socket import Result, Socket, open_in_netns

__all__ = [
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
