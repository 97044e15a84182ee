"""The host's directories that this process sees: all of them, or those its container mounts.

No program reads a container's own /etc/cni/net.d, so an empty one is no fault. A directory counts
if it is mounted below /host (as in the installer's container) or at its own path.
Tested in tests/node/test_checksystem.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

MARKS = (".dockerenv", "run/.containerenv")


def contained(environ: Mapping[str, str], root: Path = Path("/")) -> bool:
    """Whether this process runs in a container: it has a pod's variables, or a runtime's mark."""
    return bool(environ.get("KUBERNETES_SERVICE_HOST")) or any((root / m).exists() for m in MARKS)


def mounts(file: Path = Path("/proc/self/mounts")) -> tuple[Path, ...]:
    """The mount points, without the root."""
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return ()
    points = (Path(line.split()[1]) for line in lines if len(line.split()) > 1)
    return tuple(one for one in points if one != Path("/"))


def seen(folder: Path, mounted: Iterable[Path], root: Path = Path("/")) -> Path | None:
    """The path of a host's directory in this container; None if it is not mounted."""
    places = set(mounted)
    for place in (root / "host" / folder.relative_to("/"), folder):
        real = place.resolve()  # /var/run is /run
        if any(one in (real, *real.parents) for one in places):
            return place
    return None
