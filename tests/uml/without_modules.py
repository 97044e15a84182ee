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
from tests.felix.world import World, make_world
from tests.support.patience import HANG, wait_for
from tests.support.uml import SLOWER

RESULT = Path("/out/result.json")
PATIENCE = HANG * SLOWER
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
        wait_for(lambda: "not in the kernel yet" in world.log(), limit=PATIENCE)
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
        wait_for(lambda: all(talk.tcp(client, pod, 81) for pod in (one, two)), limit=PATIENCE)

        def put(name: str, *before: dict[str, Any]) -> None:
            rules = [*before, allow(protocol="TCP", destination={"ports": [80]})]
            spec = {"selector": f"role == '{name}'", "types": ["Ingress"], "ingress": rules}
            world.put("globalnetworkpolicies", name, "GlobalNetworkPolicy", spec)

        put("one", {"action": "Log"})
        put("two")
        named = partial(conditions_of, world, "GlobalNetworkPolicy(one)")
        found: Result = {"named": wait_for(named, world.log(), limit=PATIENCE)}
        wait_for(
            lambda: not talk.tcp(client, two, 81), "the other policy is in force", limit=PATIENCE
        )
        found["other"] = talk.tcp(client, two, 80, wait=PATIENCE)
        found["leaked"] = talk.tcp(client, one, 80) or talk.tcp(client, one, 81)
        found["others named"] = conditions_of(world, "GlobalNetworkPolicy(two)")
        put("one")
        wait_for(lambda: talk.tcp(client, one, 80), "without the log it is open", limit=PATIENCE)
        wait_for(lambda: not named(), limit=PATIENCE)
        found["log"] = world.log()
        return found


def lacking(folder: Path, module: str, *users: str) -> Result:
    """A module that felix cannot do without comes late; `users` hold it and go with it."""
    unload = ["modprobe", "-r", *users, module]
    subprocess.run(unload, check=True)
    with world_of("legacy", folder) as world:
        world.environment["FELIX_IPSETSREFRESHINTERVAL"] = "10"
        rules = [allow(protocol="TCP", source={"nets": ["10.65.0.1/32"]},
                       destination={"ports": [80]})]  # fmt: skip
        spec = {"selector": "role == 'one'", "types": ["Ingress"], "ingress": rules}
        world.put("globalnetworkpolicies", "one", "GlobalNetworkPolicy", spec)
        for number, name in enumerate(("client", "one"), 1):
            pod = world.wire(f"cali0{name}", f"10.65.0.{number}")
            world.put_endpoint(name, pod, labels={"role": name})
        client, one = world.pods
        with hidden(module):
            world.start_felix()
            told = partial(reasons, world, "modprobe")
            found: Result = {"told": wait_for(told, world.log(), limit=PATIENCE)}
            found["open"] = [talk.tcp(client, one, port) for port in (80, 81)]
            found["routes"] = [world.route(f"10.65.0.{number}/32") for number in (1, 2)]
            found["ready"] = world.ready()
            found["log"] = world.log()
        world.wait_ready(PATIENCE)
        wait_for(lambda: talk.tcp(client, one, 80), world.log(), limit=PATIENCE)
        found["leaked"] = talk.tcp(client, one, 81)
        wait_for(lambda: not told(), limit=PATIENCE)
        return found


def reasons(world: World, word: str) -> list[str]:
    """The conditions of felix's status that hold a word, each with its object."""
    file = world.folder / "run" / "calico" / "status" / "felix.json"
    if not file.exists():
        return []
    told = [
        f"{one['object']}: {one['reason']}" for one in json.loads(file.read_text())["conditions"]
    ]
    return [one for one in told if word in one]


def late(here: Path) -> Iterator[tuple[str, Result]]:
    """One after the other, each in a world of its own."""
    yield "ipt_rpfilter", lacking(here / "3", "ipt_rpfilter")
    yield "ip_set_hash_net", lacking(here / "4", "ip_set_hash_net")
    yield "xt_set", lacking(here / "5", "xt_set")
    others = ("xt_set", "ip_set_hash_net", "ip_set_hash_ip", "ip_set_hash_ipport")
    yield "ip_set", lacking(here / "6", "ip_set", *others)


def main() -> int:
    """All of it, or (`late`) what comes late."""
    talk.PATIENCE = 3.0
    here = Path("/tmp/worlds")
    result: Result = {}
    try:
        if sys.argv[1:] == ["late"]:
            for name, found in late(here):
                result[name] = found
        else:
            with hidden("nf_tables", "xt_LOG"):
                result["without nftables"] = without_nftables(here / "1")
                result["legacy"] = without_log("legacy", here / "2")
    except BaseException:
        result["error"] = traceback.format_exc()
    RESULT.write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
