"""Documents as Calico stores them: some that a real one stored, the others written by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "golden"


def pairs(name: str = "etcd-after-two-adds.txt") -> list[tuple[str, bytes]]:
    """Key and value, line by line."""
    lines = (FOLDER / name).read_bytes().splitlines()
    return [(lines[i].decode(), lines[i + 1]) for i in range(0, len(lines), 2)]


@dataclass(frozen=True)
class Golden:
    """One document: the kind's name (or the IPAM value's), its key, and its bytes."""

    name: str
    key: str
    raw: bytes


def documents() -> list[Golden]:
    """Every hand-written document of `golden/kinds`, as v3.32 stores it."""
    return [
        Golden(path.stem, row["key"], compact(row["value"]))
        for path in sorted((FOLDER / "kinds").glob("*.json"))
        for row in json.loads(path.read_text())
    ]


def older() -> list[tuple[str, str, bytes, bytes]]:
    """Why, key, what an older release stored, what is written back."""
    rows = json.loads((FOLDER / "older.json").read_text())
    return [
        (row["why"], row["key"], compact(row["stored"]), compact(row["written"])) for row in rows
    ]


def compact(tree: Any) -> bytes:
    """The document as Go's encoder writes it: order kept, `<`, `>` and `&` escaped."""
    text = json.dumps(tree, separators=(",", ":"), ensure_ascii=False)
    for plain in "<>&":
        text = text.replace(plain, f"\\u{ord(plain):04x}")
    return text.encode()
