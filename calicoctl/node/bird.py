"""Peers of a BIRD that Calico's own node image runs: asked over its control socket.

For nodes that are not ours yet, so that `node status` answers on both sides of a migration.
Only protocols named `Global_`, `Node_` or `Mesh_` and an address count; the others are BIRD's own.
Source: docs/reference/data-model.md#calicoctl-node-status. Tested in
`tests/calicoctl/test_node_bird.py` with a real BIRD.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path

from libcalico.local import bird_socket

FOLDERS = (Path("/var/run/calico"), Path("/var/run/bird"))
TYPES = {"Global": "global", "Node": "node specific", "Mesh": "node-to-node mesh"}
_NAME = re.compile(r"(Global|Node|Mesh)_(.+)")


class NoBird(Exception):
    """There is no BIRD, or it does not answer; the text says which."""


def peers(version: int, folders: Iterable[Path] | None = None) -> list[dict[str, str]]:
    """The peers of a family in the form of the status file; raises `NoBird`."""
    name = "bird.ctl" if version == 4 else "bird6.ctl"
    path = next((folder / name for folder in folders or FOLDERS if (folder / name).exists()), None)
    if path is None:
        raise NoBird(f"BIRDv{version} process: 'bird{'6' if version == 6 else ''}' is not running.")
    try:
        return parsed(bird_socket.answer(path, "show protocols"), version)
    except OSError as error:
        raise NoBird(f"BIRDv{version} does not answer on {path}: {error}") from None


def parsed(text: str, version: int) -> list[dict[str, str]]:
    """The peers in the answer to `show protocols`."""
    peers = []
    for line in text.splitlines():
        # The first line of a table has its code before it, the following lines a space.
        words = re.sub(r"^(\d{4}-| )", "", line).split(None, 5)
        named = _NAME.fullmatch(words[0]) if words else None
        if named is None or len(words) < 5:
            continue
        separator = "." if version == 4 else ":"
        try:
            address = ip_address(named[2].replace("_", separator))
        except ValueError:
            continue
        if address.version != version:
            continue
        peers.append(
            {
                "address": str(address),
                "type": TYPES[named[1]],
                "state": words[3],
                "since": words[4],
                "info": words[5].strip() if len(words) > 5 else "",
            }
        )
    return peers
