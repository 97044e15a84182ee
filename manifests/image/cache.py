"""Where builds keep what they fetched and made: outside the tree, named by its inputs."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEFAULT = Path("/var/cache/muslin")


class BuildError(Exception):
    """Why nothing was built, and what to do."""


def folder(*names: str) -> Path:
    """A folder of the cache, made if it is missing: MUSLIN_CACHE, else /var/cache/muslin,
    else (where that cannot be written) the user's own cache."""
    named = os.environ.get("MUSLIN_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muslin"
    for root in (Path(named),) if named else (DEFAULT, home):
        place = root.joinpath(*names)
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = error
            continue
        if os.access(place, os.W_OK):
            return place
        reason = PermissionError(f"{place} cannot be written")
    raise BuildError(f"no cache: {reason}; set MUSLIN_CACHE to a folder")


def key(*inputs: Any) -> str:
    """A name for what is made of these inputs (anything that JSON can write)."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def kept(path: Path, make: Callable[[], bytes]) -> bytes:
    """What the file holds; made and put there in one step where there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        content = make()
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_bytes(content)
    fresh.replace(path)
    return content


def digest_of(paths: list[Path], root: Path) -> str:
    """What these files are: names below `root`, modes and contents."""
    whole = hashlib.sha256()
    for path in sorted(paths):
        executable = os.access(path, os.X_OK)
        name = path.relative_to(root).as_posix()
        whole.update(f"{name}\0{int(executable)}\0".encode() + path.read_bytes() + b"\0")
    return whole.hexdigest()
