"""Which BGP peer announced a route, asked at the BIRD socket of this node's speaker.

The speaker (or a BIRD of Calico's image) answers `show route all primary for ADDRESS`.
Source: docs/bgp-status.md. Tested in tests/node/test_trace_announced.py.
"""

from __future__ import annotations

import re
import socket
from ipaddress import ip_address
from pathlib import Path

from libcalico.process import paths

TIMEOUT = 2.0
_PROTOCOL = re.compile(r"(?:Global|Node|Mesh)_([0-9a-fA-F_.:]+?)(?:_port_\d+)?")
_END = re.compile(rb"^(\d{4})( |$)", re.MULTILINE)


def announced(address: str, folder: Path = paths.RUN) -> tuple[str, str]:
    """The peer whose path to an address is used, and since when; both empty where none is.

    Raises OSError where the speaker does not answer.
    """
    version = ip_address(address).version
    path = folder / ("bird.ctl" if version == 4 else "bird6.ctl")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
        control.settimeout(TIMEOUT)
        control.connect(str(path))
        _answer(control)
        control.sendall(f"show route all primary for {address}\n".encode())
        return parsed(_answer(control), version)


def _answer(control: socket.socket) -> str:
    text = b""
    while not (text.endswith(b"\n") and _END.search(text)):
        data = control.recv(65536)
        if not data:
            raise OSError("it closed the connection")
        text += data
    return text.decode(errors="replace")


def parsed(text: str, version: int) -> tuple[str, str]:
    """Peer and time of the first route in BIRD's answer. Pure."""
    for line in text.splitlines():
        origin = re.search(r"\[(\S+) ([^\]]*?)(?: from \S+)?\]", line)
        named = _PROTOCOL.fullmatch(origin[1]) if origin else None
        if origin and named:
            peer = named[1].replace("_", "." if version == 4 else ":")
            return peer, origin[2].strip()
    return "", ""
