"""The start of every supervised process: tie its life to the supervisor, then become the agent.

`python -m node.child ROOM PARENT` runs `ROOM.main.main()` in this same process. The kernel
kills it when the supervisor is gone, so that a new supervisor never meets an old agent. The
agents are made to be killed: traffic flows on (`tests/node/test_supervisor.py`).
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module

from libcalico.process.process import die_with_parent, set_name


def main() -> None:
    """Become the agent named in the arguments."""
    room, parent = sys.argv[1], int(sys.argv[2])
    set_name(f"calico-{room}")
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(f"calico-{room}: the supervisor {parent} is gone")
    sys.argv = [f"calico-{room}"]
    import_module(f"{room}.main").main()


if __name__ == "__main__":
    main()
