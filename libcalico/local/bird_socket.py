"""One question to a BIRD, or to a speaker that answers as one, over its control socket.

Tested in tests/libcalico/test_bird_socket.py.
"""

from __future__ import annotations

import re
import socket
from pathlib import Path

TIMEOUT = 2.0
# The last line of an answer is a code of four digits and a space; a dash says more follows.
_END = re.compile(rb"^\d{4}( |$)", re.MULTILINE)


def answer(path: Path, command: str) -> str:
    """What it says to a command. Raises OSError where it does not answer within `TIMEOUT`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
        control.settimeout(TIMEOUT)
        control.connect(str(path))
        _read(control)
        control.sendall(f"{command}\n".encode())
        return _read(control)


def _read(control: socket.socket) -> str:
    text = b""
    while not (text.endswith(b"\n") and _END.search(text)):
        data = control.recv(65536)
        if not data:
            raise OSError("it closed the connection")
        text += data
    return text.decode(errors="replace")
