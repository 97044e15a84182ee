"""kube-proxy's link kube-ipvs0 comes and goes under a running felix: IPV-1's rules with it (IPV-3).

Whether policy holds through IPVS needs a kernel that has it: tests/uml/test_ipvs.py.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.felix.in_kernel import mode
from tests.felix.world import eventually, make_world
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
        eventually(lambda: world.route("10.65.0.1/32"), WITHIN)
        assert not world.chain("cali-ipvs-out")
        # By its name it is known; not every kernel has links of kube-proxy's kind, dummy.
        world.ip("link add kube-ipvs0 type bridge")
        world.ip("address add 10.96.0.10/32 dev kube-ipvs0")
        eventually(lambda: "10.65.0.1" in world.chain("cali-ipvs-from"), WITHIN, world.log())
        assert "cali-ipvs-out" in world.chain("cali-OUTPUT")
        late = world.add_pod("b", "cali0b", "10.65.0.2", "fd65::2")
        eventually(lambda: late.address in world.chain("cali-ipvs-from"), WITHIN, world.log())
        eventually(lambda: pod.reaches("10.65.0.2"), WITHIN, "forwarding is as ever")
        world.ip("link del kube-ipvs0")
        eventually(lambda: not world.chain("cali-ipvs-out"), WITHIN, world.log())
        assert world.ready()
