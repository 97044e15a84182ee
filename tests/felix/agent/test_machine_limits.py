"""What a machine may have too much or too little of: 2,000 links, and a kernel without IP-in-IP."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.felix.in_kernel import mode
from tests.felix.world import RESOURCES, World
from tests.support.patience import wait_for

LINKS = 2000
LOOKS = 3


def start(world: World, **settings: str) -> None:
    world.environment |= mode("nft")
    world.etcd.start()
    world.write_cluster()
    world.environment |= settings


def status(world: World) -> dict[str, object]:
    file = world.folder / "run" / "calico" / "status" / "felix.json"
    return dict(json.loads(file.read_text()))


def test_two_thousand_links_of_others_keep_felix_from_nothing(bare_world: World) -> None:
    """Of others: VLANs, tunnels, a big host's containers; before felix comes, and later."""
    world = bare_world
    start(world, FELIX_ROUTEREFRESHINTERVAL="2")
    half = LINKS // 4  # of pairs
    for first in (0, half):
        lines = [
            f"link add v{n} type veth peer name w{n}\nlink set v{n} up\nlink set w{n} up"
            for n in range(first, first + half)
        ]
        batch = world.folder / "links"
        batch.write_text("\n".join(lines) + "\n")
        world.node.run("ip", "-batch", str(batch))
        if not first:
            world.add_pod("first", "cali0first", "10.65.0.40")
            world.start_felix()
            world.wait_ready()
    wait_for(lambda: world.route("10.65.0.40/32"))
    # Behind all of the links' events: what comes now is served.
    world.add_pod("second", "cali0second", "10.65.0.41")
    wait_for(lambda: world.route("10.65.0.41/32"))
    # What somebody removes is put back, whatever the links.
    for _ in range(LOOKS):
        world.ip("route delete 10.65.0.40/32")
        wait_for(lambda: world.route("10.65.0.40/32"))
    assert world.ready()
    assert world.process is not None
    fields = Path(f"/proc/{world.process.pid}/stat").read_text().rpartition(")")[2].split()
    used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    print(f"{used:.1f} s of CPU for start, {LINKS} links and {LOOKS} repairs")


def test_a_kernel_without_ip_in_ip_is_named_and_all_else_goes_on(bare_world: World) -> None:
    world = bare_world
    if Path("/sys/module/ipip").exists() or Path("/sys/module/tunnel4").exists():
        pytest.skip("this kernel has IP-in-IP")
    start(world)
    world.etcd.put(
        f"{RESOURCES}/ippools/wrapped",
        json.dumps(
            {
                "apiVersion": "projectcalico.org/v3", "kind": "IPPool",
                "metadata": {"name": "wrapped"},
                "spec": {"cidr": "10.66.0.0/16", "blockSize": 26, "ipipMode": "Always",
                         "vxlanMode": "Never", "nodeSelector": "all()"},
            }
        ),
    )  # fmt: skip
    world.add_pod("first", "cali0first", "10.65.0.40")
    world.start_felix()
    world.wait_ready()
    wait_for(lambda: world.route("10.65.0.40/32"))
    wait_for(lambda: "modprobe ipip" in json.dumps(status(world)["conditions"]))
    (told,) = {
        one["object"]
        for one in status(world)["conditions"]  # type: ignore[attr-defined]
        if "modprobe ipip" in one["reason"] and "wrapped" in one["object"]
    }
    assert told == "IPPool(wrapped)"
    assert "cali0first" in world.chain("cali-from-wl-dispatch")
