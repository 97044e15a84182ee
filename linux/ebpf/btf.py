"""BTF: where the running kernel keeps the fields of its structures, and names of its numbers.

Problem: a program that reads `struct sk_buff` needs offsets, and these differ between kernels. The
kernel describes its own types in /sys/kernel/btf/vmlinux.
Source: https://docs.kernel.org/bpf/btf.html.
Tested in tests/linux/test_ebpf.py.
"""

from __future__ import annotations

import errno
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path

from linux.errors import KernelError

FILE = Path("/sys/kernel/btf/vmlinux")
_HEADER = struct.Struct("<HBBIIIII")
_MAGIC = 0xEB9F
_TYPE = struct.Struct("<III")
_STRUCT, _UNION, _ENUM = 4, 5, 6
_ENUM64 = 19
# Bytes behind a type's head, of each kind: as many for all, or for each member.
_FIXED = {1: 4, 3: 12, 14: 4, 17: 4}
_EACH = {_STRUCT: 12, _UNION: 12, _ENUM: 8, 13: 8, 15: 12, _ENUM64: 12}


class Btf:
    """The types of a kernel. Raises `KernelError` (ENOENT) where it does not describe itself."""

    def __init__(self, path: Path = FILE) -> None:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise KernelError(
                error.errno or errno.EIO, f"read {path}", "the kernel has no BTF"
            ) from error
        if len(data) < _HEADER.size or _HEADER.unpack_from(data)[0] != _MAGIC:
            raise KernelError(errno.EINVAL, f"read {path}", "it is no BTF of this byte order")
        _, _, _, head, type_at, type_size, text_at, text_size = _HEADER.unpack_from(data)
        self._types = data[head + type_at : head + type_at + type_size]
        self._texts = data[head + text_at : head + text_at + text_size]
        self._places = self._walk()
        self._found: dict[tuple[str, tuple[int, ...]], int] = {}

    def _walk(self) -> array[int]:
        places = array("L", [0])
        types, offset, end = self._types, 0, len(self._types)
        unpack, fixed, each = _TYPE.unpack_from, _FIXED.get, _EACH.get
        while offset < end:
            places.append(offset)
            info = unpack(types, offset)[1]
            kind = info >> 24 & 0x1F
            offset += 12 + (fixed(kind) or each(kind, 0) * (info & 0xFFFF))
        return places

    def _named(self, name: str, kinds: tuple[int, ...]) -> int:
        """The place of the type of a name; each is looked for once, among all types."""
        if (name, kinds) not in self._found:
            self._found[name, kinds] = self._search(name, kinds)
        return self._found[name, kinds]

    def _search(self, name: str, kinds: tuple[int, ...]) -> int:
        place_of_name = self._texts.find(b"\0" + name.encode() + b"\0") + 1
        if place_of_name:
            head = struct.pack("<I", place_of_name)
            for place in self._places[1:]:
                if self._types.startswith(head, place):
                    _, info, _ = _TYPE.unpack_from(self._types, place)
                    if info >> 24 & 0x1F in kinds:
                        return place
        raise KernelError(errno.ENOENT, f"look up {name} in BTF", "this kernel has no such type")

    def offset(self, structure: str, member: str) -> int:
        """Where a member begins, in bytes; it may lie in unnamed structures inside."""
        place = self._named(structure, (_STRUCT, _UNION))
        bits = self._find(place, member.encode())
        if bits is None:
            raise KernelError(
                errno.ENOENT, f"look up {structure}.{member} in BTF", "there is no such member"
            )
        return bits // 8

    def _find(self, place: int, member: bytes) -> int | None:
        _, info, _ = _TYPE.unpack_from(self._types, place)
        if info >> 24 & 0x1F not in (_STRUCT, _UNION):
            return None
        for name, kind, offset in self._members(place, info):
            if self._text(name) == member:
                return offset
            if not name:
                inside = self._find(self._places[kind], member)
                if inside is not None:
                    return offset + inside
        return None

    def _members(self, place: int, info: int) -> Iterator[tuple[int, int, int]]:
        mask = 0xFFFFFF if info >> 31 else 0xFFFFFFFF
        for number in range(info & 0xFFFF):
            name, kind, offset = _TYPE.unpack_from(self._types, place + 12 + 12 * number)
            yield name, kind, offset & mask

    def numbers(self, enumeration: str) -> dict[int, str]:
        """The names of an enumeration's numbers."""
        place = self._named(enumeration, (_ENUM,))
        _, info, _ = _TYPE.unpack_from(self._types, place)
        names = {}
        for number in range(info & 0xFFFF):
            name, value = struct.unpack_from("<Ii", self._types, place + 12 + 8 * number)
            names[value] = self._text(name).decode()
        return names

    def _text(self, offset: int) -> bytes:
        return self._texts[offset : self._texts.index(b"\0", offset)]
