"""What the numbers of a NOTIFICATION mean, in words for the status.

Registry: IANA BGP parameters (RFC 4271 section 4.5, RFC 4486, RFC 5492, RFC 6608, RFC 8538,
RFC 9384, RFC 9687). Tested in tests/bgp/test_notices.py.
"""

from __future__ import annotations

import re

_SENTENCE = re.compile(r"(notification (?:sent|received) \((\d+),(\d+)\))(.*)", re.DOTALL)

_CODES = {
    1: "message header error",
    2: "OPEN message error",
    3: "UPDATE message error",
    4: "hold timer expired",
    5: "finite state machine error",
    6: "cease",
    7: "ROUTE-REFRESH message error",
    8: "send hold timer expired",
}
_SUBCODES = {
    (2, 1): "unsupported version",
    (2, 2): "wrong AS number of the peer",
    (2, 3): "bad router id",
    (2, 4): "unsupported optional parameter",
    (2, 6): "unacceptable hold time",
    (2, 7): "a capability is missing",
    (3, 1): "malformed attribute list",
    (3, 9): "error in an optional attribute",
    (3, 10): "invalid network field",
    (3, 11): "malformed AS_PATH",
    (6, 1): "too many prefixes",
    (6, 2): "administrative shutdown",
    (6, 3): "no peer is configured for this address",
    (6, 4): "administrative reset",
    (6, 5): "connection refused",
    (6, 6): "other configuration change",
    (6, 7): "two connections collided",
    (6, 8): "out of resources",
    (6, 9): "hard reset",
    (6, 10): "BFD is down",
}


def explained(words: str) -> str:
    """ExaBGP's words for the end of a session; a NOTIFICATION's numbers get theirs.

    >>> explained("notification sent (4,0)")
    'notification sent (4,0): hold timer expired'
    """
    match = _SENTENCE.fullmatch(words)
    if match is None or match[4]:
        return words
    code, subcode = int(match[2]), int(match[3])
    meaning = _SUBCODES.get((code, subcode)) or _CODES.get(code)
    return f"{match[1]}: {meaning}" if meaning else words
