"""The kernel's counting of packets and bytes of connections: on while flows are made.

`net/netfilter/nf_conntrack_acct` is off in most systems. Felix switches it on with flow logs, and
off again when they are switched off, if it was felix that switched it on: a file on the node says
so, so that a felix that was started again knows. Connections that began before have no counts.

Invariant:
  ACC-1  What an operator switched on stays on.
Tested in tests/felix/flows/test_accounting.py.
"""

from __future__ import annotations

import logging
from pathlib import Path

from linux import sysctl
from linux.errors import KernelError

SETTING = "net/netfilter/nf_conntrack_acct"

log = logging.getLogger(__name__)


class Accounting:
    """The setting of this node. `mark` is the file that says that felix switched it on."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark
        self.problem = ""
        """Why packets and bytes are not counted, "" where they are or need not be."""

    def want(self, counting: bool) -> None:
        """Switch counting on, or off where felix had switched it on."""
        self.problem = ""
        try:
            if counting:
                self._switch_on()
            elif self._mark.exists():
                sysctl.set(SETTING, 0)
                self._mark.unlink(missing_ok=True)
                log.info("%s is 0 again, as it was before flow logs", SETTING)
        except (KernelError, OSError) as error:
            self.problem = f"packets and bytes of connections are not counted: {error}"
            log.warning("flow logs: %s", self.problem)

    def _switch_on(self) -> None:
        if sysctl.get(SETTING) != "0":
            return
        # The mark first: a felix that dies between the two switches off what is off.
        self._mark.parent.mkdir(parents=True, exist_ok=True)
        self._mark.touch()
        sysctl.set(SETTING, 1)
        log.info("%s is 1 now, for flow logs", SETTING)
