"""One rule that the kernel refuses closes the policy that has it and holds up nobody else.

A restore that meets a marked port is refused here, as a kernel without some match would refuse.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.felix import talk
from tests.felix.in_kernel import mode
from tests.felix.stage import allow, conditions_of
from tests.felix.world import Pod, World, make_world
from tests.support.patience import HANG, wait_for

MARKED = 6666


@pytest.fixture(scope="module", params=["nft", "legacy"])
def refusing(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[World, Path]]:
    """A node on which a file decides whether rules with the marked port are taken."""
    with make_world(tmp_path_factory.mktemp("world")) as world:
        folder, flag = world.folder / "bin", world.folder / "refused"
        folder.mkdir()
        for tool in ("iptables", "ip6tables"):
            name = f"{tool}-{request.param}-restore"
            shim = folder / name
            shim.write_text(
                "#!/bin/sh\n"
                'text=$(mktemp); cat > "$text"\n'
                f'if [ -e "{flag}" ] && grep -q -- "-ports {MARKED}" "$text"; then\n'
                '  rm "$text"; echo "no such match" >&2; exit 1\n'
                "fi\n"
                f'/usr/sbin/{name} "$@" < "$text"; code=$?; rm "$text"; exit $code\n'
            )
            shim.chmod(0o755)
        world.environment |= mode(request.param)
        world.environment["PATH"] = f"{folder}:{os.environ['PATH']}"
        flag.touch()
        world.etcd.start()
        world.write_cluster()
        world.start_felix()
        world.wait_ready()
        for number, name in enumerate(("client", "one", "two"), 1):
            pod = world.wire(f"cali0{name}", f"10.65.0.{number}", f"fd65::{number}")
            world.put_endpoint(name, pod, labels={"role": name})
        for pod in world.pods:
            pod.until_reached("203.0.113.9")
        yield world, flag


@pytest.mark.promise("PAIN-28")
def test_a_refused_rule_closes_its_policy_and_no_other(refusing: tuple[World, Path]) -> None:
    world, flag = refusing
    client, one, two = world.pods

    def open(server: Pod, port: int) -> bool:
        return all(talk.tcp(client, server, port, family) for family in (4, 6))

    def put(name: str, *ports: int) -> None:
        rules = [allow(protocol="TCP", destination={"ports": [port]}) for port in ports]
        spec = {"selector": f"role == '{name}'", "types": ["Ingress"], "ingress": rules}
        world.put("globalnetworkpolicies", name, "GlobalNetworkPolicy", spec)

    put("one", 80, MARKED)
    put("two", 80)
    wait_for(lambda: not talk.tcp(client, one, 81) and not talk.tcp(client, two, 81))
    wait_for(lambda: open(two, 80))
    wait_for(lambda: not open(one, 80), "closed, with what it allows besides")
    reason = wait_for(lambda: conditions_of(world, "GlobalNetworkPolicy(one)"))[0]
    assert "cali-pi-gnp/one" in reason
    assert "no such match" in reason
    # It stays so, without a failing write each time somebody else comes.
    before = time.monotonic()
    fresh = world.add_pod("fresh", f"cali0{int(before * 10) % 10000}", "10.65.0.9")
    wait_for(lambda: fresh.reaches("10.99.7.2", wait=0.2))
    assert time.monotonic() - before < HANG
    assert not open(one, 80)
    # Another policy of that name has its chance at once.
    put("one", 80)
    wait_for(lambda: open(one, 80))
    wait_for(lambda: not conditions_of(world, "GlobalNetworkPolicy(one)"))
    put("one", 80, MARKED)
    wait_for(lambda: not open(one, 80))
    flag.unlink()
    # So has the kernel, whenever rules are read back.
    wait_for(lambda: open(one, 80) and open(one, MARKED))
    wait_for(lambda: not conditions_of(world, "GlobalNetworkPolicy(one)"))
    assert "cali-trial" not in world.node.run("iptables-nft-save") + world.node.run(
        "iptables-legacy-save"
    )
