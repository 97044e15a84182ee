"""Whether a time service keeps the kernel's clock: adjtimex(2), read only, no root needed.

Tested in tests/node/test_checksystem.py.
"""

from __future__ import annotations

import ctypes

_STA_UNSYNC = 0x0040
_TIME_ERROR = 5


class _Timex(ctypes.Structure):
    """`struct timex` up to the fields that are read, and room for the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("maximum_error", ctypes.c_long),
        ("estimated_error", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def read() -> tuple[bool | None, float | None]:
    """(synchronised, largest error in seconds); None where the kernel does not say."""
    clock = _Timex()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(clock))
    except (AttributeError, OSError):
        return None, None
    if state < 0:
        return None, None
    synchronised = state != _TIME_ERROR and not clock.status & _STA_UNSYNC
    return synchronised, clock.maximum_error / 1e6
