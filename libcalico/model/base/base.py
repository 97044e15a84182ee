"""The base of all model structs, and how they express Go's `omitempty`.

A field with a plain default (`""`, `0`, `False`, `None`, an empty list or dict) is
omitted when it holds that default: exactly Go's `omitempty`. A field that Go always
writes is declared with `always(...)`. The order of the fields is the order of the bytes.

Structs are frozen and hold no reference cycles, so the cyclic collector does not track them.
Otherwise it would cost more than the parser.
Tested in tests/libcalico/test_codec.py.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


class Struct(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The base of every stored object and of its parts."""


def always(default: T) -> T:
    """A field with a default that is written even when it holds that default."""
    if isinstance(default, (list, dict)):
        # An empty container behind a lambda: a bare `list` factory counts as "a default".
        return msgspec.field(default_factory=lambda: type(default)())
    return msgspec.field(default_factory=lambda: default)
