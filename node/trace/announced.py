"""Which BGP peer announced a route, asked at the BIRD socket of this node's speaker.

The speaker (or a BIRD of Calico's image) answers `show route all primary for ADDRESS`.
Source: docs/bgp-status.md. Tested in tests/node/test_trace_announced.py.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from pathlib import Path

from libcalico.local import bird_socket
from libcalico.process import paths

_PROTOCOL = re.compile(r"(?:Global|Node|Mesh)_([0-9a-fA-F_.:]+?)(?:_port_\d+)?")


def announced(address: str, folder: Path = paths.RUN) -> tuple[str, str]:
    """The peer whose path to an address is used, and since when; both empty where none is.

    Raises OSError where the speaker does not answer.
    """
    version = ip_address(address).version
    path = folder / ("bird.ctl" if version == 4 else "bird6.ctl")
    return parsed(bird_socket.answer(path, f"show route all primary for {address}"), version)


def parsed(text: str, version: int) -> tuple[str, str]:
    """Peer and time of the first route in BIRD's answer. Pure."""
    for line in text.splitlines():
        origin = re.search(r"\[(\S+) ([^\]]*?)(?: from \S+)?\]", line)
        named = _PROTOCOL.fullmatch(origin[1]) if origin else None
        if origin and named:
            peer = named[1].replace("_", "." if version == 4 else ":")
            return peer, origin[2].strip()
    return "", ""
