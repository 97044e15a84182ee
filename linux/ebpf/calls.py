"""bpf(2): maps, programs, raw tracepoints. Each is a descriptor, and gone when it is closed.

Why not a library: those at PyPI bring a compiler or need kprobes; three calls of one system call
do (docs/design/0017-trace.md). Structure layouts: union bpf_attr of linux/bpf.h.
Tested in tests/linux/test_ebpf.py.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

from linux.errors import KernelError

MAP_ARRAY, MAP_RINGBUF = 2, 27
RAW_TRACEPOINT = 17
_NUMBERS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
_MAP_CREATE, _MAP_LOOKUP, _PROG_LOAD, _RAW_TRACEPOINT_OPEN = 0, 1, 5, 17
_ATTRIBUTES = 128
_LOG = 1 << 16

_libc = ctypes.CDLL(None, use_errno=True)


def _bpf(command: int, attributes: bytes, what: str) -> int:
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise KernelError(38, what, f"bpf(2) is not known here for {platform.machine()}")
    buffer = ctypes.create_string_buffer(attributes, _ATTRIBUTES)
    result: int = _libc.syscall(
        ctypes.c_long(number), ctypes.c_long(command), buffer, ctypes.c_long(_ATTRIBUTES)
    )
    if result < 0:
        raise KernelError(ctypes.get_errno(), what)
    return result


def create_map(kind: int, key: int, value: int, entries: int) -> int:
    """A map; sizes in bytes. Raises `KernelError` (EPERM without CAP_BPF)."""
    fd = _bpf(_MAP_CREATE, struct.pack("=IIII", kind, key, value, entries), "make a BPF map")
    os.set_inheritable(fd, False)
    return fd


def lookup_u64(fd: int, index: int) -> int:
    """An element of an array of eight-byte numbers."""
    key = ctypes.create_string_buffer(struct.pack("=I", index), 4)
    value = ctypes.create_string_buffer(8)
    attributes = struct.pack("=IxxxxQQQ", fd, ctypes.addressof(key), ctypes.addressof(value), 0)
    _bpf(_MAP_LOOKUP, attributes, "read a BPF map")
    return int.from_bytes(value.raw, "little")


def load(code: bytes, name: str) -> int:
    """A program for a raw tracepoint; a refusal carries the end of the verifier's log."""
    instructions = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"GPL")
    log = ctypes.create_string_buffer(_LOG)
    attributes = struct.pack(
        "=IIQQIIQII16s",
        RAW_TRACEPOINT,
        len(code) // 8,
        ctypes.addressof(instructions),
        ctypes.addressof(licence),
        1,
        _LOG,
        ctypes.addressof(log),
        0,
        0,
        name.encode()[:15],
    )
    try:
        fd = _bpf(_PROG_LOAD, attributes, f"load BPF program {name}")
    except KernelError as error:
        said = log.value.decode(errors="replace").strip().splitlines()
        raise KernelError(error.errno, error.what, "; ".join(said[-3:])) from None
    os.set_inheritable(fd, False)
    return fd


def attach(program: int, tracepoint: str) -> int:
    """The link of a program to a raw tracepoint; the program runs until it is closed."""
    name = ctypes.create_string_buffer(tracepoint.encode())
    attributes = struct.pack("=QI", ctypes.addressof(name), program)
    fd = _bpf(_RAW_TRACEPOINT_OPEN, attributes, f"attach to tracepoint {tracepoint}")
    os.set_inheritable(fd, False)
    return fd
