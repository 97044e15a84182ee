"""What the kernel itself refuses closes the policy that has it, on each back end (design 0009).

In legacy iptables one log line a day is more than xt_limit can count (ERANGE); in nftables the
expression that logs is one that the kernel does not know. tests/uml/test_without_modules.py has a
kernel whose modules are gone.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.felix import talk
from tests.felix.in_kernel import NFTABLES, mode
from tests.felix.stage import allow, conditions_of
from tests.felix.world import Pod, World
from tests.support.patience import wait_for


def closed(client: Pod, server: Pod, port: int, family: int) -> bool:
    return not talk.tcp(client, server, port, family)


@pytest.mark.promise("PAIN-28")
@pytest.mark.parametrize("backend", ["legacy", NFTABLES])
def test_a_policy_whose_log_is_refused_closes_and_no_other(bare_world: World, backend: str) -> None:
    world = bare_world
    world.environment |= mode(backend)
    if backend == NFTABLES:
        world.program = ("tests.felix.lacking_log",)
    else:
        world.environment["FELIX_LOGACTIONRATELIMIT"] = "1/day"
    world.etcd.start()
    world.write_cluster()
    world.start_felix()
    world.wait_ready()
    for number, name in enumerate(("client", "one", "two"), 1):
        pod = world.wire(f"cali0{name}", f"10.65.0.{number}", f"fd65::{number}")
        world.put_endpoint(name, pod, labels={"role": name})
    client, one, two = world.pods
    for family in (4, 6):
        for server in (one, two):
            wait_for(partial(talk.tcp, client, server, 81, family))

    def put(name: str, *before: dict[str, object]) -> None:
        rules = [*before, allow(protocol="TCP", destination={"ports": [80]})]
        spec = {"selector": f"role == '{name}'", "types": ["Ingress"], "ingress": rules}
        world.put("globalnetworkpolicies", name, "GlobalNetworkPolicy", spec)

    put("one", {"action": "Log"})
    put("two")
    named = partial(conditions_of, world, "GlobalNetworkPolicy(one)")
    (reason,) = wait_for(named)
    assert "cali-pi-gnp/one" in reason
    for family in (4, 6):
        wait_for(partial(closed, client, two, 81, family))
        wait_for(partial(talk.tcp, client, two, 80, family))  # the other policy is open
        assert not talk.tcp(client, one, 80, family), "closed with all that it allows"
    assert not conditions_of(world, "GlobalNetworkPolicy(two)")
    # Who comes meanwhile does not wait for it, and a policy that changes has its chance.
    fresh = world.add_pod("fresh", "cali0fresh", "10.65.0.9")
    wait_for(lambda: fresh.reaches("10.99.7.2", wait=0.2))
    assert not talk.tcp(client, one, 80)
    put("one")
    wait_for(lambda: talk.tcp(client, one, 80) and talk.tcp(client, one, 80, 6))
    wait_for(lambda: not named())
