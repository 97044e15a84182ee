"""What the kernel answers: the messages of a datagram, its errors, and the fate of a request.

Tested in tests/linux/test_netlink.py.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from linux.errors import KernelError
from linux.netlink import wire as m

_ERRMSG = 1

Message = tuple[int, int, int, bytes]
"""(type, flags, sequence, body)."""


@dataclass(slots=True)
class Result:
    """The fate of one request.

    `errno` 0 is success. `detail` is the kernel's extended text. `answers` are the messages it
    sent back (type, body without header): objects asked for, or the echo of a created one.
    """

    index: int
    kind: int
    errno: int = 0
    detail: str = ""
    answers: list[tuple[int, bytes]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the kernel did what was asked."""
        return self.errno == 0

    def error(self, what: str = "") -> KernelError | None:
        """The failure as an exception value; `what` names the object ("add route 10.0.0.0/26")."""
        if self.errno == 0:
            return None
        return KernelError(self.errno, what or f"netlink request type {self.kind}", self.detail)

    def check(self, what: str = "") -> Result:
        """Raises `KernelError` unless it went well; returns itself."""
        error = self.error(what)
        if error is not None:
            raise error
        return self


def split(data: bytes) -> list[Message]:
    """The messages in a datagram."""
    messages = []
    offset = 0
    end = len(data)
    while offset + m.HEADER.size <= end:
        length, kind, flags, sequence, _ = m.HEADER.unpack_from(data, offset)
        if length < m.HEADER.size or offset + length > end:
            break
        messages.append((kind, flags, sequence, data[offset + m.HEADER.size : offset + length]))
        offset += (length + 3) & ~3
    return messages


def read_error(body: bytes) -> tuple[int, str]:
    """Errno and text of an error message; (0, "") acknowledges."""
    code, length = struct.unpack_from("=iI", body)
    if not code:
        return 0, ""
    # The refused request's header follows the code; its payload too, unless the kernel capped it.
    offset = 4 + m.HEADER.size
    return -code, _extended_text(body, offset) or _extended_text(body, 4 + ((length + 3) & ~3))


def read_done(body: bytes) -> tuple[int, str]:
    """Errno and text of the end of a dump; (0, "") if it went well."""
    code = -struct.unpack_from("=i", body)[0] if len(body) >= 4 else 0
    return (code, _extended_text(body, 4)) if code else (0, "")


def _extended_text(body: bytes, offset: int) -> str:
    """The kernel's own sentence, in the attributes from `offset` on."""
    if offset >= len(body):
        return ""
    value = m.parse_attributes(body, offset).get(_ERRMSG)
    return m.as_text(value) if value else ""
