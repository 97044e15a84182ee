"""A pod with an IPv4 and an IPv6 address on a real node: wiring, routes, packets, deletion."""

from __future__ import annotations

import re

from lab import pods, proc
from lab.cluster import Lab
from lab.demo import look
from lab.demo.wiring import interface
from tests.support.patience import HANG


def test_a_dual_stack_pod(dual: Lab) -> None:
    node = dual.nodes[0]
    one = pods.add(dual, "six-1", "node1", ports=["tcp:8080"])
    two = pods.add(dual, "six-2", "node1")
    four, six = one.addresses
    assert four.startswith("10.65.")
    assert six.startswith("fd65:")
    text = node.run(["ip", "-6", "addr", "show", "eth0"], netns=one.netns).stdout
    assert f"inet6 {six}/128 scope global" in text
    routes = node.run(["ip", "-6", "route"], netns=one.netns).stdout
    assert re.search(r"default via fe80::ecee:eeff:feee:eeee dev eth0", routes)
    machine_routes = node.run(["ip", "-6", "route"]).stdout
    assert re.search(rf"{re.escape(six)} dev {interface(one)} ", machine_routes)
    for address in one.addresses:
        assert pods.answers(dual, two, address)
        assert node.run(["ping", "-c1", "-W60", address], check=False).returncode == 0
    for address in two.addresses:
        assert pods.answers(dual, one, address)
    for pod in (one, two):
        pods.remove(dual, pod)
    proc.wait_until(
        lambda: interface(one) not in node.run(["ip", "-6", "route"]).stdout,
        "the /128 is gone",
        timeout=HANG,
    )
    assert not any(look.in_use(dual).values())
