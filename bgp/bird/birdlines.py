"""BIRD's control protocol as bytes: lines with codes
(docs/reference/dataplane.md#birds-control-socket). Pure.

A line is four digits, `-` where more of the answer follows, a space where it ends, and text. A
line with the code of the one before it starts with a space in its place. So a reader needs no
length: it reads until a line with four digits and a space. The codes are those of BIRD 2.0.12,
read off its socket. Tested in tests/bgp/test_birdctl.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

OK, WELCOME = 0, 1
RUNNING, ROUTE_COUNT, RESTRICTED, RECOVERING = 13, 14, 16, 24
VERSION, PROTOCOL, PROTOCOL_DETAIL = 1000, 1002, 1006
ROUTE, ROUTE_DETAIL, IDENTITY, ROUTE_ATTRIBUTES = 1007, 1008, 1011, 1012
PROTOCOL_HEADER = 2002
NOT_FOUND, NO_PROTOCOLS, DENIED, SYNTAX = 8001, 8003, 8007, 9001

HEADER = "name     proto    table    state  since       info"
"""Lower case as BIRD 1 writes it, because Calico's own `calicoctl` takes no other; those who
read BIRD 2 go by the code and the columns."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an answer; `last` ends it."""

    code: int
    text: str = ""
    last: bool = False


def last(code: int, text: str = "") -> Line:
    """The line that ends an answer."""
    return Line(code, text, last=True)


def encode(lines: Iterable[Line | None]) -> Iterator[bytes]:
    """The bytes of an answer, line by line; none for what gave no line."""
    before = None
    for line in lines:
        if line is None:
            yield b""
            continue
        if line.last:
            start = f"{line.code:04} "
        else:
            start = " " if line.code == before else f"{line.code:04}-"
        before = line.code
        # Nothing that a peer or an object says may end a line early, or begin one.
        text = line.text
        if not text.lstrip("\t").isprintable():
            text = "".join(one if one.isprintable() else "?" for one in text)
        yield f"{start}{text}\n".encode()


@lru_cache(maxsize=1024)
def since(moment: datetime, now: datetime) -> str:
    """The time of the last day, the date of an earlier one; one word."""
    young = now - moment < timedelta(days=1)
    return moment.strftime("%H:%M:%S" if young else "%Y-%m-%d")


def stamp(moment: datetime) -> str:
    """A time in full."""
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def protocol_row(name: str, kind: str, table: str, state: str, changed: str, info: str) -> str:
    """A row below `HEADER`. No column is ever empty: readers count words."""
    return f"{name:8} {kind:8} {table:8} {state:6} {changed:10}  {info}"
