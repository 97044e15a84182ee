"""Removal of the chains that the plugin portmap leaves on a node that is given up.

With the last pod that has a host port, portmap removes the port, but not the chains that led to it,
nor the jumps into those. It makes them again when it needs them.

Limits: the table that portmap writes with `backend: nftables` (`cni_hostport`) stays. Reading and
deleting are two steps: a port that is forwarded between the two is lost. So `calico-node cleanup`
is for a node that takes no pods any more.
Tested in tests/node/test_cleanup.py; tests/k8s/test_removal.py has the plugin itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

from felix.dataplane.rules import backend_removal
from linux.errors import CommandError
from linux.iptables import HashScheme, Table
from linux.iptables.render import Desired

PREFIX, PORTS = "CNI-HOSTPORT-", "CNI-HOSTPORT-DNAT"
# No comment of portmap's is a hash of this scheme: names identify its chains and jumps.
SCHEME = HashScheme("portmap:", (PREFIX,))


async def remove(lock_wait: float, say: Callable[[str], None]) -> dict[str, str]:
    """Remove the chains where no port is forwarded; returns the failures by place."""
    failures: dict[str, str] = {}
    for variant in backend_removal.VARIANTS:
        for family in cast("tuple[Literal[4, 6], ...]", (4, 6)):
            if "nat" not in backend_removal.holding(variant, family, SCHEME.owns):
                continue
            table = Table("nat", family, variant, SCHEME, lock_wait=max(1, round(lock_wait)))
            where = f"nat of iptables-{variant}, IPv{family}"
            try:
                counts = await table.counters((PORTS,))
                if counts.get(PORTS):
                    say(f"{where}: {PORTS} still forwards ports, and stays")
                elif PORTS in counts and (await table.commit(Desired({}, {}, {}))).chains_deleted:
                    say(f"{where}: the chains of portmap, which forward nothing, are removed")
            except CommandError as error:
                failures[where] = str(error)
            finally:
                table.close()
    return failures
