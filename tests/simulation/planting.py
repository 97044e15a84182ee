"""`python -m tests.simulation.planting [NAME ...] [--seeds N]`: are planted bugs found?

Each patch in `planted/` (its name begins with the world that must find it) is applied to a copy of
the tree, in which seeds run until one fails. A table says which seed that was. What a patch does
not touch is linked, with what was compiled of it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
PLANTED = Path(__file__).parent / "planted"
ROOMS = ("linux", "libcalico", "ipam", "flows", "felix", "bgp", "cni", "controllers", "node")
MOST = 2000
APPLY = ("git", "apply", "-C1")
"""How a planted bug is applied, here and where lint asks whether it can be."""


@dataclass(frozen=True)
class Found:
    """The first seed that fails with a planted bug, None where none did, and what it said."""

    name: str
    seed: int | None
    failure: str = ""


def names() -> list[str]:
    """All planted bugs."""
    return sorted(path.stem for path in PLANTED.glob("*.patch"))


def world_of(name: str) -> str:
    """The world that must find it."""
    return name.partition("_")[0]


def hunt(name: str, most: int = MOST, known: tuple[str, ...] = (), first: int = 0) -> Found:
    """Run seeds of its world, from `first` on, in a copy of the tree with this bug.

    `known`: what failures of today's code begin with; they do not count.
    """
    patch = PLANTED / f"{name}.patch"
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Path(folder)
        _copy(copy, [Path(one) for one in re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.M)])
        subprocess.run([*APPLY, str(patch)], cwd=copy, check=True)
        end = first + most
        while first < end:
            one = _first_failure(copy, world_of(name), first, end - first)
            if one is None:
                break
            for failure in one["failures"]:
                if not any(re.match(each, failure) for each in known):
                    return Found(name, one["seed"], failure)
            first = one["seed"] + 1
    return Found(name, None)


def _copy(copy: Path, patched: Sequence[Path]) -> None:
    """A tree of links, but for the files that are patched and the folders above them."""
    for name in (*ROOMS, "tests"):
        (copy / name).symlink_to(ROOT / name)
    for path in patched:
        for folder in reversed(path.parents[:-1]):
            _open(copy / folder, ROOT / folder)
        (copy / path).unlink()
        shutil.copy(ROOT / path, copy / path)
        for compiled in (copy / path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()


def _open(link: Path, folder: Path) -> None:
    """A folder of links in place of a link to a folder."""
    if not link.is_symlink():
        return
    link.unlink()
    link.mkdir()
    for each in folder.iterdir():
        (link / each.name).symlink_to(each)
    compiled = link / "__pycache__"
    if compiled.is_symlink():
        _open(compiled, folder / "__pycache__")


def _first_failure(copy: Path, world: str, first: int, count: int) -> dict[str, Any] | None:
    words = ["--world", world, "--first", str(first), "--seeds", str(count), "--json"]
    words += ["--cold"] if count == 1 else []
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.command", *words, "--jobs", "1", "--stop"],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr)
    found: list[dict[str, Any]] = json.loads(done.stdout)["failures"]
    return found[0] if found else None


def main() -> int:
    """Hunt those that are named, or all; 1 when one was not found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="*")
    parser.add_argument("--seeds", type=int, default=MOST)
    asked = parser.parse_args()
    lost = 0
    for name in asked.name or names():
        found = hunt(name, asked.seeds)
        lost += found.seed is None
        seed = "not found" if found.seed is None else f"seed {found.seed}"
        print(f"{name:50} {seed:10} {found.failure}", flush=True)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
