"""What the plugin portmap leaves of a node that is given up: chains that forward no port any more.

With the last pod that has a host's port portmap takes its ports away, and leaves the chains that
led to them, and the jumps into those. It makes them again where it needs them.

Limits: what portmap writes with `backend: nftables` (a table of its own, `cni_hostport`) stays, and
looking and deleting are two steps: a port that is forwarded between the two is lost, which is why
`calico-node cleanup` is for a node that takes no pods any more.
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
# No comment of portmap's is a hash of this scheme: chains and jumps are known by their names.
SCHEME = HashScheme("portmap:", (PREFIX,))


async def remove(lock_wait: float, say: Callable[[str], None]) -> dict[str, str]:
    """Takes the chains away where no port is forwarded; returns failures."""
    failures: dict[str, str] = {}
    for variant in backend_removal.VARIANTS:
        for family in cast("tuple[Literal[4, 6], ...]", (4, 6)):
            if "nat" not in backend_removal.holding(variant, family, SCHEME.owns):
                continue
            table = Table("nat", family, variant, SCHEME, lock_wait=max(1, round(lock_wait)))
            where = f"nat of iptables-{variant}, IPv{family}"
            try:
                found = await table.counters((PORTS,))
                if found.get(PORTS):
                    say(f"{where}: {PORTS} still forwards ports, and stays")
                elif PORTS in found and (await table.commit(Desired({}, {}, {}))).chains_deleted:
                    say(f"{where}: the chains of portmap, which forward nothing, are removed")
            except CommandError as error:
                failures[where] = str(error)
            finally:
                table.close()
    return failures
