"""Addresses, DSCP values and WireGuard keys in the forms that Calico takes.

Tested in tests/libcalico/test_validate.py and tests/libcalico/test_invalid_documents.py.
"""

from __future__ import annotations

import base64
import re
from ipaddress import IPv4Address, IPv6Address, ip_address

_MAC_OCTETS = (6, 8, 20)
"""Ethernet, EUI-64 and InfiniBand: what Go's net.ParseMAC takes."""
_MAC_PARTS = re.compile(
    r"[0-9a-fA-F]{2}((:[0-9a-fA-F]{2})+|(-[0-9a-fA-F]{2})+)|[0-9a-fA-F]{4}(\.[0-9a-fA-F]{4})+"
)
DSCP_NAMES = {
    "DF": 0,
    "EF": 46,
    **{f"AF{level}{drop}": 8 * level + 2 * drop for level in range(1, 5) for drop in range(1, 4)},
    **{f"CS{level}": 8 * level for level in range(8)},
}
"""RFC 2474, 2597 and 3246."""
MAX_DSCP = 63


def address_of(text: str) -> IPv4Address | IPv6Address | None:
    """The address in `ip` or `ip/len`, or None."""
    try:
        return ip_address(text.partition("/")[0])
    except ValueError:
        return None


def is_mac(text: str) -> bool:
    """Whether a text is a MAC address, with colons, dashes or dots."""
    octets = len(re.sub("[:.-]", "", text)) // 2
    return octets in _MAC_OCTETS and _MAC_PARTS.fullmatch(text) is not None


def is_dscp(value: int | str) -> bool:
    """Whether a value is a DSCP: 0 to 63, or a name such as EF, AF41, CS6 in any letter case."""
    return dscp_number(value) is not None


def dscp_number(value: int | str) -> int | None:
    """The number of a DSCP, None where a value is none."""
    if isinstance(value, str):
        if not (value.isascii() and value.isdigit()):
            return DSCP_NAMES.get(value.strip().upper())
        value = int(value)
    return value if 0 <= value <= MAX_DSCP else None


def is_wireguard_key(text: str) -> bool:
    """Whether a text is a WireGuard key: 32 bytes in base64."""
    try:
        return len(base64.b64decode(text, validate=True)) == 32
    except ValueError:
        return False
