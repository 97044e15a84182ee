"""An assembler of eBPF: instructions with labels, and the bytes that the kernel takes.

Source: https://docs.kernel.org/bpf/standardization/instruction-set.html. Only what our programs
use is here; jumps go forward, so each program ends.
Tested in tests/linux/test_ebpf.py.
"""

from __future__ import annotations

import struct

R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10 = range(11)
"""Registers: the result, five arguments, four that calls keep, and the end of the stack."""
_INSTRUCTION = struct.Struct("<BBhi")
_LOADS = {1: 0x71, 2: 0x69, 4: 0x61, 8: 0x79}
_STORES = {1: 0x73, 2: 0x6B, 4: 0x63, 8: 0x7B}
_MAP_FD = 1


class Program:
    """Instructions in their order; `code` resolves the labels."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, int, int, int, int, str]] = []
        self._labels: dict[str, int] = {}

    def _add(
        self, op: int, dst: int = 0, src: int = 0, off: int = 0, imm: int = 0, to: str = ""
    ) -> None:
        self._lines.append((op, dst, src, off, imm, to))

    def label(self, name: str) -> None:
        """The place of the next instruction."""
        self._labels[name] = len(self._lines)

    def move(self, dst: int, src: int) -> None:
        """Register to register."""
        self._add(0xBF, dst, src)

    def set(self, dst: int, value: int) -> None:
        """A signed number of 32 bits into a register."""
        self._add(0xB7, dst, imm=value)

    def add(self, dst: int, value: int) -> None:
        """Add a signed number."""
        self._add(0x07, dst, imm=value)

    def add_register(self, dst: int, src: int) -> None:
        """Add a register."""
        self._add(0x0F, dst, src)

    def mask(self, dst: int, value: int) -> None:
        """Keep these bits; the number is extended by its sign."""
        self._add(0x57, dst, imm=value)

    def shift_right(self, dst: int, bits: int) -> None:
        """Shift, filling with zeros."""
        self._add(0x77, dst, imm=bits)

    def load(self, size: int, dst: int, base: int, offset: int) -> None:
        """Read `size` bytes at base + offset."""
        self._add(_LOADS[size], dst, base, offset)

    def store(self, size: int, base: int, offset: int, src: int) -> None:
        """Write `size` bytes at base + offset."""
        self._add(_STORES[size], base, src, offset)

    def add_atomically(self, base: int, offset: int, src: int) -> None:
        """Add a register to eight bytes of memory that others change too."""
        self._add(0xDB, base, src, offset)

    def load_map(self, dst: int, fd: int) -> None:
        """The map behind a descriptor; two instructions."""
        self._add(0x18, dst, _MAP_FD, imm=fd)
        self._add(0)

    def call(self, helper: int) -> None:
        """Call a helper of the kernel; R1 to R5 are lost."""
        self._add(0x85, imm=helper)

    def jump(self, to: str) -> None:
        """Go on at a label."""
        self._add(0x05, to=to)

    def jump_if(self, register: int, value: int, to: str) -> None:
        """Go on at a label where the register's lower 32 bits are this number."""
        self._add(0x16, register, imm=_signed(value), to=to)

    def jump_unless(self, register: int, value: int, to: str) -> None:
        """Go on at a label where the register's lower 32 bits are another number."""
        self._add(0x56, register, imm=_signed(value), to=to)

    def jump_if_zero(self, register: int, to: str) -> None:
        """Go on at a label where all of the register is zero."""
        self._add(0x15, register, to=to)

    def exit(self) -> None:
        """The end; R0 is the result."""
        self._add(0x95)

    def code(self) -> bytes:
        """The bytes. Raises ValueError for a label that is not there, or lies behind the jump."""
        parts = []
        for place, (op, dst, src, off, imm, to) in enumerate(self._lines):
            if to:
                if self._labels.get(to, -1) <= place:
                    raise ValueError(
                        f"label {to!r}: want one that stands after instruction {place}"
                    )
                off = self._labels[to] - place - 1
            parts.append(_INSTRUCTION.pack(op, dst | src << 4, off, imm))
        return b"".join(parts)


def _signed(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
