"""kube-proxy's link kube-ipvs0 comes and goes under a running felix: IPV-1's rules with it (IPV-3);
with a mark mask that is too small for them, IPV-4's.

Whether policy holds through IPVS needs a kernel that has it: tests/uml/test_ipvs.py.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.felix.in_kernel import mode
from tests.felix.stage import conditions_of
from tests.felix.world import make_world, reaches, until_reached
from tests.support.patience import wait_for
from tests.tiers import FULL_SIZE

BACKENDS = ("nft", "legacy", "nftables") if os.environ.get(FULL_SIZE) else ("nftables",)
WITHIN = 120.0


@pytest.mark.parametrize("backend", BACKENDS)
def test_rules_stand_as_long_as_the_link_does(backend: str, tmp_path: Path) -> None:
    with make_world(tmp_path) as world:
        world.environment |= mode(backend)
        world.etcd.start()
        world.write_cluster()
        pod = world.add_pod("a", "cali0a", "10.65.0.1", "fd65::1")
        world.start_felix()
        world.wait_ready(WITHIN)
        wait_for(lambda: world.route("10.65.0.1/32"))
        assert not world.chain("cali-ipvs-out")
        # By its name it is known; not every kernel has links of kube-proxy's kind, dummy.
        world.ip("link add kube-ipvs0 type bridge")
        world.ip("address add 10.96.0.10/32 dev kube-ipvs0")
        wait_for(lambda: "10.65.0.1" in world.chain("cali-ipvs-from"), world.log())
        assert "cali-ipvs-out" in world.chain("cali-OUTPUT")
        late = world.add_pod("b", "cali0b", "10.65.0.2", "fd65::2")
        wait_for(lambda: late.address in world.chain("cali-ipvs-from"), world.log())
        pod.until_reached("10.65.0.2", "forwarding is as ever")
        world.ip("link del kube-ipvs0")
        wait_for(lambda: not world.chain("cali-ipvs-out"), world.log())
        assert world.ready()


@pytest.mark.parametrize("backend", BACKENDS)
def test_with_a_small_mask_the_node_and_its_pods_are_shut_and_it_is_told(
    backend: str, tmp_path: Path
) -> None:
    with make_world(tmp_path) as world:
        mask = {"FELIX_NFTABLESMARKMASK": "0x1f0000", "FELIX_IPTABLESMARKMASK": "0x1f0000"}
        world.environment |= mode(backend) | mask
        world.etcd.start()
        world.write_cluster()
        pod = world.add_pod("a", "cali0a", "10.65.0.1", "fd65::1")
        other = world.add_pod("b", "cali0b", "10.65.0.2", "fd65::2")
        world.start_felix()
        world.wait_ready(WITHIN)
        until_reached(world.node, "10.65.0.1")
        pod.until_reached("10.65.0.2")
        settings = "FelixConfiguration(default)"
        assert not conditions_of(world, settings)
        world.ip("link add kube-ipvs0 type bridge")
        world.ip("address add 10.96.0.10/32 dev kube-ipvs0")
        wait_for(lambda: conditions_of(world, settings), world.log())
        (said,) = conditions_of(world, settings)
        assert "spec.iptablesMarkMask" in said
        assert "0x1f0000 has 5 bits" in said
        wait_for(lambda: not reaches(world.node, "10.65.0.1", wait=0.3))
        wait_for(lambda: not reaches(world.node, "fd65::1", wait=0.3))
        assert not pod.reaches("10.99.7.1", wait=0.3)
        pod.until_reached("10.65.0.2")
        other.until_reached("fd65::1")
        world.ip("link del kube-ipvs0")
        until_reached(world.node, "10.65.0.1", world.log)
        wait_for(lambda: not conditions_of(world, settings))
