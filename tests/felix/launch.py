"""Words that start a program with a private /run and /var/lib, in a network namespace's `command`.

/var/lib is the directory `var-lib` of /run. `ip netns exec` has given the process a mount namespace
of its own. A shell does it: an interpreter of Python takes longer than all the mounts.
"""

from __future__ import annotations

from pathlib import Path

_SCRIPT = """set -e
mkdir -p "$1/var-lib"
mount --make-rprivate /
mount --bind "$1/var-lib" /var/lib
mount --bind "$1" /run
shift
exec "$@"
"""


def launched(run: Path, *program: str) -> list[str]:
    """The words for a program whose /run is this directory."""
    return ["sh", "-c", _SCRIPT, "launch", str(run), *program]
