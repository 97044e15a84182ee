"""`table arp calico-arp`, which Calico's felix left: removed with the last of Calico's pods.

It drops a pod's ARP replies that claim the pod's own address: with proxy ARP both ends of a link
answer. Calico has it in nftables whichever back end its rules are in. Pods of our plugin have a
permanent neighbour instead and need no such table.

Invariants:
  ARP-1  The table stays while a workload's interface has no alias: our plugin sets one, Calico's
         does not. No table of another family or name is touched.
  ARP-2  A table that comes back has a living writer: it stays, and the log says so once.
Tested in tests/felix/dataplane/test_stale_routes.py.
"""

from __future__ import annotations

import errno
import logging
from contextlib import closing

from felix.dataplane.devices.view import KernelView
from linux.errors import KernelError
from linux.nftables.connection import Connection
from linux.nftables.messages import delete_table

NAME = "calico-arp"

log = logging.getLogger(__name__)


def needed(view: KernelView) -> bool:
    """Whether a pod that Calico's plugin may have made is left (ARP-1). Pure."""
    return any(
        not link.alias and link.name.startswith(view.prefixes) for link in view.links.values()
    )


class ArpTable:
    """Removes the table once it is not needed."""

    def __init__(self) -> None:
        self._removed = self._living = False

    def sweep(self, view: KernelView) -> None:
        """Look, and remove it. A refusal is only logged: the table harms no pod of ours."""
        if self._living or view.outdated or needed(view):
            return
        try:
            with closing(Connection()) as connection:
                self._remove(connection)
        except (KernelError, OSError) as error:
            # A kernel without nf_tables has no such socket, and no table.
            if getattr(error, "errno", None) not in (errno.EPROTONOSUPPORT, errno.ENOENT):
                log.warning("not removed: %s", error, extra={"object": f"table arp {NAME}"})

    def _remove(self, connection: Connection) -> None:
        if not connection.available() or connection.table_flags("arp", NAME) is None:
            return
        if self._removed:
            self._living = True
            log.warning(
                "came back after it was removed, and stays: is Calico still running?",
                extra={"object": f"table arp {NAME}"},
            )
            return
        connection.commit([delete_table("arp", NAME)], [f"delete table arp {NAME}"])
        self._removed = True
        log.info(
            "left by Calico, removed: no pod of Calico's plugin is left",
            extra={"object": f"table arp {NAME}"},
        )
