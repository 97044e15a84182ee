"""Felix that writes rules by iptables-restore alone: `python -m tests.felix.restore_only`.

What it has read once it writes without that program (linux.iptables.packed), which a test cannot
refuse by standing in front of the program.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from felix import main
from linux.iptables.packed import Packer


def nothing(_self: Packer, _steps: Sequence[object]) -> None:
    """No batch can be made."""


if __name__ == "__main__":
    Packer.pack = nothing  # type: ignore[method-assign, assignment]
    sys.exit(main.main())
