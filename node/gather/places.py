"""Which of the host's directories this process sees: all of them, or those its container mounts.

A container's own /etc/cni/net.d is no directory that anything reads, so what it lacks is no fault.
A directory counts where it is mounted below /host (as the installer has it) or at its own place.
Tested in tests/node/test_checksystem.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

MARKS = (".dockerenv", "run/.containerenv")


def contained(environ: Mapping[str, str], root: Path = Path("/")) -> bool:
    """Whether this process runs in a container: a pod's variables, or a runtime's mark."""
    return bool(environ.get("KUBERNETES_SERVICE_HOST")) or any((root / m).exists() for m in MARKS)


def mounts(file: Path = Path("/proc/self/mounts")) -> tuple[Path, ...]:
    """The places where something is mounted, without the root."""
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return ()
    found = (Path(line.split()[1]) for line in lines if len(line.split()) > 1)
    return tuple(one for one in found if one != Path("/"))


def seen(folder: Path, mounted: Iterable[Path], root: Path = Path("/")) -> Path | None:
    """Where a directory of the host is in a container; None where it is not mounted."""
    places = set(mounted)
    for place in (root / "host" / folder.relative_to("/"), folder):
        real = place.resolve()  # /var/run is /run
        if any(one in (real, *real.parents) for one in places):
            return place
    return None
