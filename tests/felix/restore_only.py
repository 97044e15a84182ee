"""Felix that writes rules by iptables-restore alone: `python -m tests.felix.restore_only`.

What it has read once it writes without that program (linux.iptables.packed), which a test cannot
refuse by standing in front of the program. What was refused it tries again each half second, and a
tunnel that it does not need it gives up after one.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from felix import main
from felix.dataplane import loop
from felix.dataplane.devices import tunnels
from libcalico.process.backoff import Backoff
from linux.iptables.packed import Packer


class Eager(Backoff):
    """Its pauses hardly grow."""

    def __init__(self, initial: float, _maximum: float) -> None:
        super().__init__(initial, 0.5)


def nothing(_self: Packer, _steps: Sequence[object]) -> None:
    """No batch can be made."""


if __name__ == "__main__":
    Packer.pack = nothing  # type: ignore[method-assign, assignment]
    tunnels.LINGER = 1.0
    loop.Backoff = Eager  # type: ignore[assignment, attr-defined]
    sys.exit(main.main())
