"""VXLAN between racks on this machine's kernel: each mode, and live switches under traffic.

   router (BIRD, knows every pod) -- rack 1: node1 node2, rack 2: node3

1. Without tunnels, routes are bgp's: through eth0, to the other rack by the router.
2. CrossSubnet: the other rack's pods are behind vxlan.calico, the own rack's behind eth0.
3. Always: all pods of other nodes are behind vxlan.calico. Never again: as at first.
4. A switch costs what is sent while the two ends differ (`./run bench modes` tells how much) and
   nothing afterwards; a TCP stream and all addresses survive.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.tunnels.scene import NEVER, Modes, Scene, scene, switch


@pytest.fixture(scope="module")
def made() -> Iterator[Scene]:
    with scene(f"tun{os.getpid()}") as made:
        made.comes_to("eth0", "eth0")
        made.connected()
        yield made


@pytest.mark.promise("F-60", "F-62", "M-149")
@pytest.mark.parametrize(
    ("modes", "near", "far"),
    [
        (("Never", "CrossSubnet"), "eth0", "vxlan.calico"),
        (("Never", "Always"), "vxlan.calico", "vxlan.calico"),
        (NEVER, "eth0", "eth0"),
    ],
    ids=["CrossSubnet", "Always", "Never"],
)
def test_a_switch_is_hardly_felt(made: Scene, modes: Modes, near: str, far: str) -> None:
    found = switch(made, modes, near, far)
    print("\n".join(found["lines"]))
    assert found["sent"] > 50
    assert found["lost_after"] == 0, found["lines"]
    assert not found["stream"], found["stream"]
    assert found["kept"]


@pytest.mark.promise("M-144", "F-61")
def test_ipip_on_a_kernel_without_it_leaves_what_bgp_routes(made: Scene) -> None:
    if made.machine("node1").run(["ip", "link", "show", "tunl0"], check=False).returncode == 0:
        pytest.skip("this kernel has IP-in-IP")
    made.set_mode(("Always", "Never"))
    try:
        made.eventually_told("node1", "IPPool(pods)", "no IP-in-IP")
        made.comes_to("eth0", "eth0")
        made.connected()
    finally:
        made.set_mode(NEVER)
