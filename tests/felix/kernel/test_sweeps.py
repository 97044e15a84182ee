"""What nobody wants any more: gone soon, and at once where packets could still come to it."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from felix.dataplane.rules.removal_timing import DELAY, LATER
from tests.felix.kernel.test_policy_in_force import saved
from tests.felix.world import World
from tests.support.patience import wait_for

RULE = {"action": "Allow", "source": {"selector": "role == 'friend'"}}
GATEWAY6 = "fe80::ecee:eeff:feee:eeee%eth0"
"""The node's end of every pod's link."""
SOON = 1.0


@contextmanager
def never_quiet(world: World) -> Iterator[None]:
    """Addresses come and go on the node, so that felix always has something to do."""
    ended = threading.Event()

    def stir() -> None:
        for verb in itertools.cycle(("add", "del")):
            world.node.run("ip", "address", verb, "192.0.2.1/32", "dev", "lo")
            if verb == "del" and ended.wait(DELAY / 5):
                return

    thread = threading.Thread(target=stir)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def chains(world: World, interface: str) -> str:
    """What stands of an endpoint's chains, and of the way to them."""
    dispatch = f"cali-from-wl-dispatch-{interface.removeprefix('cali')[0]}"
    ways = [line for line in world.chain(dispatch).splitlines() if interface in line]
    return "".join([world.chain(f"cali-fw-{interface}"), *ways])


def test_chains_ways_and_sets_of_a_pod_that_left_go(world: World) -> None:
    spec = {"selector": "role == 'web'", "types": ["Ingress"], "ingress": [RULE]}
    world.put("globalnetworkpolicies", "web", "GlobalNetworkPolicy", spec)
    before = set(world.kernel.sets())
    pod = world.wire("cali1web", "10.65.0.21")
    world.put_endpoint("web", pod, labels={"role": "web"})
    wait_for(lambda: world.route("10.65.0.21/32") and chains(world, "cali1web"))
    # Each kind has a watch of its own: the endpoint may come with its chains before the policy.
    wait_for(lambda: set(world.kernel.sets()) > before)
    world.node.run("ip", "link", "del", "cali1web")
    world.delete_endpoint("web")
    wait_for(lambda: not chains(world, "cali1web"))
    wait_for(lambda: set(world.kernel.sets()) == before)
    world.delete("globalnetworkpolicies", "web")


def test_what_left_goes_behind_another_pod_where_it_is_never_quiet(world: World) -> None:
    """When it goes is shown by a clock of their own in tests/felix/dataplane/test_dirty_set.py."""
    pod = world.wire("cali2old", "10.65.0.22")
    world.put_endpoint("old", pod)
    wait_for(lambda: world.route("10.65.0.22/32"))
    with never_quiet(world):
        world.node.run("ip", "link", "del", "cali2old")
        world.delete_endpoint("old")
        time.sleep(2 * LATER)  # behind a pod that comes earlier it does not go
        world.add_pod("new", "cali2new", "10.65.0.23")
        wait_for(lambda: not chains(world, "cali2old"))
        # Whoever stirs may have been too slow: then the quiet moment came before the new pod.
        wait_for(lambda: chains(world, "cali2new"))
    world.delete_endpoint("new")


def test_an_endpoint_whose_interface_stays_is_shut_at_once(world: World) -> None:
    """Its IPv6 link-local packets to the node need no route."""
    pod = world.wire("cali3stays", "10.65.0.24", "fd65::24")
    world.put_endpoint("stays", pod)
    wait_for(lambda: pod.reaches(GATEWAY6, wait=0.2))
    with never_quiet(world):
        world.delete_endpoint("stays")
        wait_for(lambda: not chains(world, "cali3stays"))
        assert not pod.reaches(GATEWAY6, wait=0.3)


def test_a_successor_has_nothing_of_a_family_that_it_lacks(world: World) -> None:
    """RBK-5: nor has it for the moment until the next sweep."""
    world.put("profiles", "kns.shut", "Profile", {})
    old = world.wire("cali4again", "10.65.0.25", "fd65::25")
    world.put_endpoint("again", old)
    wait_for(lambda: world.route("10.65.0.25/32") and "cali4again" in saved(world)[1])
    here = world.metric("felix_active_local_endpoints")
    with never_quiet(world):
        world.node.run("ip", "link", "del", "cali4again")
        world.delete_endpoint("again")
        # The route goes with the link. A felix that has not heard of the rest would rightly serve
        # the predecessor on the successor's link.
        wait_for(lambda: world.metric("felix_active_local_endpoints") == here - 1)
        wait_for(lambda: not world.route("10.65.0.25/32"))
        new = world.wire("cali4again", "10.65.0.25", "fd65::25")
        world.put_endpoint(
            "again", new, "d" * 64, ipNetworks=["10.65.0.25/32"], profiles=["kns.shut"]
        )
        wait_for(lambda: world.route("10.65.0.25/32"))
        four, six, _ = saved(world)
        assert "cali4again" in four
        assert "cali4again" not in six
    world.delete_endpoint("again")
