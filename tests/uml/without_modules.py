"""Felix on a kernel that lacks parts of netfilter: `python -m tests.uml.without_modules`, inside.

Modules are hidden, so each refusal is the kernel's own. Results are in /out/result.json, judged by
tests/uml/test_without_modules.py. This guest's kernel has nf_tables, but not for IPv4.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.felix import talk
from tests.felix.in_kernel import mode
from tests.felix.stage import allow, conditions_of
from tests.felix.world import World, eventually, make_world
from tests.support.uml import SLOWER

RESULT = Path("/out/result.json")
PATIENCE = 8.0 * SLOWER
Result = dict[str, Any]


@contextmanager
def hidden(*modules: str) -> Iterator[None]:
    """The kernel does not find these modules."""
    found = [
        path
        for name in modules
        for path in Path("/lib/modules", os.uname().release).rglob(f"{name}.ko")
    ]
    assert len(found) == len(modules), modules
    for path in found:
        subprocess.run(["mount", "--bind", "/dev/null", str(path)], check=True)
    try:
        yield
    finally:
        for path in found:
            subprocess.run(["umount", str(path)], check=True)


@contextmanager
def world_of(backend: str, folder: Path) -> Iterator[World]:
    """A node with a datastore, IPv4 only; felix does not run."""
    folder.mkdir(parents=True)
    with make_world(folder) as world:
        world.environment |= mode(backend) | {"FELIX_IPV6SUPPORT": "false"}
        world.etcd.start()
        world.write_cluster()
        yield world


def without_nftables(folder: Path) -> Result:
    """Rules are to be in nftables, which this kernel does not have."""
    with world_of("nftables", folder) as world:
        world.add_pod("a", "cali0a", "10.65.0.1")
        world.start_felix()
        eventually(lambda: "not in the kernel yet" in world.log(), PATIENCE)
        return {"log": world.log(), "ready": world.ready(), "route": world.route("10.65.0.1/32")}


def without_log(backend: str, folder: Path) -> Result:
    """Two policies, one of which logs."""
    with world_of(backend, folder) as world:
        world.start_felix()
        world.wait_ready(PATIENCE)
        for number, name in enumerate(("client", "one", "two"), 1):
            pod = world.wire(f"cali0{name}", f"10.65.0.{number}")
            world.put_endpoint(name, pod, labels={"role": name})
        client, one, two = world.pods
        eventually(lambda: all(talk.tcp(client, pod, 81) for pod in (one, two)), PATIENCE)

        def put(name: str, *before: dict[str, Any]) -> None:
            rules = [*before, allow(protocol="TCP", destination={"ports": [80]})]
            spec = {"selector": f"role == '{name}'", "types": ["Ingress"], "ingress": rules}
            world.put("globalnetworkpolicies", name, "GlobalNetworkPolicy", spec)

        put("one", {"action": "Log"})
        put("two")
        named = partial(conditions_of, world, "GlobalNetworkPolicy(one)")
        found: Result = {"named": eventually(named, PATIENCE, world.log())}
        eventually(lambda: not talk.tcp(client, two, 81), PATIENCE, "the other policy is in force")
        found["other"] = talk.tcp(client, two, 80)
        found["leaked"] = talk.tcp(client, one, 80) or talk.tcp(client, one, 81)
        found["others named"] = conditions_of(world, "GlobalNetworkPolicy(two)")
        put("one")
        eventually(lambda: talk.tcp(client, one, 80), PATIENCE, "without the log it is open")
        eventually(lambda: not named(), PATIENCE)
        found["log"] = world.log()
        return found


def main() -> int:
    """All of it."""
    talk.PATIENCE = 3.0
    here = Path("/tmp/worlds")
    result: Result = {}
    try:
        with hidden("nf_tables", "xt_LOG"):
            result["without nftables"] = without_nftables(here / "1")
            result["legacy"] = without_log("legacy", here / "2")
    except BaseException:
        result["error"] = traceback.format_exc()
    RESULT.write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
