"""Values that JSON may spell as a number or as text: AS numbers, ports, protocols.

Each has one canonical form, which structs hold and write: an AS number is an int; a
single port is an int, a range `"min:max"`, a name itself; a protocol is an int where it
is numeric, else its name. Tested in tests/libcalico/test_validate.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

MAX_AS_NUMBER = 0xFFFFFFFF
_GO_EXPONENT = 2.0**63
"""Larger whole numbers stay floats: JSON integers end here."""
PORT_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")

if TYPE_CHECKING:
    ASNumber = int
else:
    # Text is taken when decoding; `as_number` then makes an int of it.
    ASNumber = int | str


def order(value: float | None) -> float | None:
    """A policy's or tier's order as Go writes it: a whole number without a fraction."""
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < _GO_EXPONENT
    return int(value) if is_whole and value is not None else value


def as_number(value: int | str) -> int:
    """An AS number from a number, `"65000"` or the dotted `"1.10"` (1 * 65536 + 10, RFC 5396).

    Raises ValueError with the rule.
    """
    rule = "an AS number is 0 to 4294967295, or dotted as <0-65535>.<0-65535>"
    if isinstance(value, bool):
        raise ValueError(rule)
    if isinstance(value, int):
        number = value
    else:
        high, dot, low = value.strip().partition(".")
        if not (high.isascii() and high.isdigit()):
            raise ValueError(rule)
        number = int(high)
        if dot:
            if not (low.isascii() and low.isdigit()) or number > 0xFFFF or int(low) > 0xFFFF:
                raise ValueError(rule)
            number = number * 65536 + int(low)
    if not 0 <= number <= MAX_AS_NUMBER:
        raise ValueError(rule)
    return number


def port(value: int | str) -> int | str:
    """A port in canonical form. Raises ValueError with the rule."""
    rule = "a port is 0 to 65535, a range min:max, or a name of letters, digits, '_', '.' and '-'"
    if isinstance(value, int):
        number: int | str = value
    elif value.isascii() and value.isdigit():
        number = int(value)
    elif ":" in value:
        low, _, high = value.partition(":")
        digits = value.isascii() and low.isdigit() and high.isdigit()
        if not digits or not int(low) <= int(high) <= 65535:
            raise ValueError(rule)
        return int(low) if int(low) == int(high) else f"{int(low)}:{int(high)}"
    elif PORT_NAME.fullmatch(value):
        return value
    else:
        raise ValueError(rule)
    if not 0 <= int(number) <= 65535:
        raise ValueError(rule)
    return number


def port_or_as_is(value: int | str) -> int | str:
    """A port in canonical form; other values stay as they are, for validation to name."""
    try:
        return port(value)
    except ValueError:
        return value


def protocol(value: int | str) -> int | str:
    """A protocol in canonical form; numeric text becomes a number. Raises ValueError."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, int) and not 0 <= value <= 255:
        raise ValueError("a protocol number is 1 to 255")
    return value
