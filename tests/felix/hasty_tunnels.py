"""Felix that gives up tunnels it does not need soon: `python -m tests.felix.hasty_tunnels FILE`.

While there is such a file it does so after a second, else after as long as ever.
"""

from __future__ import annotations

import sys
from pathlib import Path

from felix.dataplane.devices import tunnels
from felix.main import main


class Linger:
    """Seconds, for who adds them to a time."""

    def __init__(self, file: Path) -> None:
        self._file, self._usual = file, tunnels.LINGER

    def __radd__(self, now: float) -> float:
        return now + (1.0 if self._file.exists() else self._usual)


if __name__ == "__main__":
    tunnels.LINGER = Linger(Path(sys.argv[1]))  # type: ignore[assignment]
    sys.exit(main([]))
