"""Whether a device computes checksums of what it sends, or leaves them to a device behind it.

A tunnel device with TX checksum offload hands packets on whose checksum is still to be filled
in; a network card that does that wrongly inside a tunnel loses every such packet in silence.
Source: linux/ethtool.h (ETHTOOL_GTXCSUM, ETHTOOL_STXCSUM).
Tested in tests/linux/test_offload.py.
"""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct

from linux.errors import KernelError
from linux.link_values import checked_name

_SIOCETHTOOL = 0x8946
_GET, _SET = 0x16, 0x17
_VALUE = struct.Struct("=II")  # command, value


def tx_checksum(name: str) -> bool:
    """Whether packets leave the device with checksums to be filled in. Raises `KernelError`."""
    return bool(_ethtool(name, _GET, 0))


def set_tx_checksum(name: str, on: bool) -> None:
    """Switches it. Raises `KernelError`."""
    _ethtool(name, _SET, int(on))


def _ethtool(name: str, command: int, value: int) -> int:
    packed = checked_name(name).encode()
    data = ctypes.create_string_buffer(_VALUE.pack(command, value), _VALUE.size)
    request = struct.pack("@16sP16x", packed, ctypes.addressof(data))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            fcntl.ioctl(sock, _SIOCETHTOOL, request)
        except OSError as error:
            raise KernelError(error.errno or 0, f"checksum offload of {name}") from error
    result: int = _VALUE.unpack(data.raw)[1]
    return result
