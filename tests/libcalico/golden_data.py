"""The documents that a real Calico stored, as (key, value) pairs."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def pairs(name: str = "etcd-after-two-adds.txt") -> list[tuple[str, bytes]]:
    """Key and value, line by line."""
    lines = (FOLDER / name).read_bytes().splitlines()
    return [(lines[i].decode(), lines[i + 1]) for i in range(0, len(lines), 2)]
