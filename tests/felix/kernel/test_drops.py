"""Who denied which packet: counted by the kernel, and told one by one while somebody follows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from typing import Any

import msgspec
import pytest

from calicoctl.explaining.drops import _line, denier_text
from felix.rules import nflog_prefix
from libcalico.local.trace_messages import Denier, Dropped
from tests.felix.console import attempt, calicoctl, following
from tests.felix.stage import ONLY_CLIENT, Stage, allow, both
from tests.support.patience import wait_for

CASE = [
    allow(protocol="TCP", source=ONLY_CLIENT),
    {"action": "Deny", "protocol": "UDP", "destination": {"ports": [53]}},
]


def prefixes(stage: Stage) -> str:
    """The rules that tell, as the kernel has them."""
    kernel = stage.world.kernel
    chains = ("cali-pi-gnp/case", "cali-tw-cali3server", "cali-fw-cali1client")
    text = "\n".join(kernel.chain(name) for name in chains)
    return "\n".join(line for line in text.splitlines() if "NFLOG" in line or "log prefix" in line)


def deniers(stage: Stage) -> dict[str, int]:
    """Denied packets by who denied them."""
    told = json.loads(calicoctl(stage.world, "node", "drops", "-o", "json"))
    found: dict[str, int] = {}
    for one in told["counts"]:
        by = one["by"]
        name = f"{by.get('name', '')}[{by.get('rule')}]" if by.get("name") else by.get("tier", "")
        found[name] = found.get(name, 0) + one["packets"]
    return found


@pytest.mark.promise("F-103")
def test_each_denied_packet_is_told_with_the_rule_that_denied_it(stage: Stage) -> None:
    stage.policy("case", CASE)
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    assert prefixes(stage) == ""
    before = stage.world.kernel.chain("cali-pi-gnp/case")
    with following(stage.world, "node", "drops", "-f", "-o", "json") as follower:
        assert "Denied packets of node node1" in follower.said()
        assert "DPI" in prefixes(stage)
        # DRP-1: what passes and what does not is the same.
        assert stage.through(*both("client * tcp 80"), *both("other * tcp 80")) == both(
            "client * tcp 80"
        )
        seen = [follower.next_flow() for _ in range(2)]
        assert {(e["source"], e["destination"]) for e in seen} == {
            ("10.65.0.2", "10.65.0.3"),
            ("fd65::2", "fd65::3"),
        }
        for one in seen:
            assert one["by"] == msgspec.to_builtins(Denier(True, "default"))
            assert (one["source_pod"], one["destination_pod"]) == (
                "default/other",
                "default/server",
            )
            assert (one["protocol"], one["destination_port"]) == (6, 80)
            assert one["out_interface"] == "cali3server"
        stage.through("client 4 udp 53")
        udp = follower.next_flow()
        case = Denier(True, "default", "GlobalNetworkPolicy", "", "case", 1)
        assert udp["by"] == msgspec.to_builtins(case)
        assert (udp["protocol"], udp["destination_port"], udp["source_pod"]) == (
            17, 53, "default/client",
        )  # fmt: skip
    wait_for(lambda: prefixes(stage) == "", "the rules go with who followed")
    assert _without_counts(stage.world.kernel.chain("cali-pi-gnp/case")) == _without_counts(before)


def _without_counts(chain: str) -> str:
    return re.sub(r"\[\d+:\d+\]|packets \d+ bytes \d+", "", chain)


@pytest.mark.promise("F-103")
def test_denied_packets_are_counted_by_who_denied_them(stage: Stage) -> None:
    stage.policy("case", CASE)
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    start = deniers(stage)
    stage.through("other 4 tcp 80")
    stage.through("client 4 udp 53", "client 6 udp 53")
    # What was sent may still be in the kernel's queues.
    twice = start.get("case[1]", 0) + 2
    wait_for(lambda: deniers(stage).get("case[1]") == twice, lambda: deniers(stage))
    wait_for(lambda: deniers(stage)["default"] > start["default"])
    shown = calicoctl(stage.world, "node", "drops")
    assert "tier default, GlobalNetworkPolicy case, ingress[1]" in shown
    assert "end of tier default: no policy allows it (pod default/server)" in shown
    assert calicoctl(stage.world, "node", "drops", "-n", "nobody") == (
        "Node node1 has denied no packet since its rules were written.\n"
    )


def test_following_resets_no_count(stage: Stage) -> None:
    """DEN-1: chains are written anew when the first follower comes and when the last one goes."""
    stage.policy("case", CASE)
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    stage.through("client 4 udp 53", "client 6 udp 53", "other 4 tcp 80")
    before = deniers(stage)
    assert before["case[1]"]
    with following(stage.world, "node", "drops", "-f", "-o", "json") as follower:
        follower.said()
        assert deniers(stage) == before, "the rules that tell have counted nothing"
        stage.through("client 4 udp 53")
        while follower.next()["by"].get("name") != "case":
            pass
        meanwhile = deniers(stage)
        assert meanwhile["case[1]"] == before["case[1]"] + 1
    wait_for(lambda: prefixes(stage) == "")
    wait_for(lambda: deniers(stage)["case[1]"] == meanwhile["case[1]"])
    stage.through("client 4 udp 53")
    wait_for(lambda: deniers(stage)["case[1]"] == meanwhile["case[1]"] + 1)
    stage.policy("case", [CASE[0], {**CASE[1], "protocol": "UDPLite"}])
    wait_for(lambda: "case[1]" not in deniers(stage), "another rule has denied nothing yet")


def test_two_may_follow_and_the_rules_stay_until_both_are_gone(stage: Stage) -> None:
    stage.policy("case", CASE)
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    with following(stage.world, "node", "drops", "-f", "-o", "json") as first:
        first.said()
        with following(stage.world, "node", "drops", "-f", "-o", "json") as second:
            second.said()
            stage.through("other 4 tcp 80")
            assert first.next_flow()["source"] == second.next_flow()["source"] == "10.65.0.2"
        stage.through("client 4 udp 53")
        assert first.next_flow()["source"] == "10.65.0.1", "each is told of once"
    wait_for(lambda: prefixes(stage) == "")


def test_who_floods_is_not_told_of_without_end(stage: Stage) -> None:
    stage.policy("case", CASE)
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    with following(stage.world, "node", "drops", "-f", "-o", "json") as follower:
        follower.said()
        code = (
            "import socket\n"
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            "for n in range(2000): s.sendto(b'x', ('10.65.0.3', 53))\n"
        )
        began = time.monotonic()
        stage.client.space.run(sys.executable, "-c", code)
        lasted = time.monotonic() - began
        # Another rule tells of this one, after all that was told of the flood.
        stage.through("other 4 tcp 80")
        told = 0
        while follower.next()["source"] == "10.65.0.1":
            told += 1
        assert 5 <= told <= nflog_prefix.LIMIT.burst + nflog_prefix.LIMIT.rate * (lasted + 1)


def test_felix_that_ends_ends_who_follows(stage: Stage) -> None:
    with following(stage.world, "node", "drops", "-f") as follower:
        follower.said()
        stage.world.stop_felix()
        assert "felix ended" in follower.said()
        stage.world.start_felix()
        stage.world.wait_ready()


def test_without_root_or_without_felix_it_says_what_to_do(stage: Stage) -> None:
    done = run_as_nobody("node", "drops")
    assert done.returncode == 1
    assert "felix answers root only" in done.stderr
    somewhere = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", _ELSEWHERE],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert somewhere.returncode == 1
    assert "felix does not run on this machine" in somewhere.stderr
    assert attempt(stage.world, "node", "drops", "-o", "table").returncode == 1


_ELSEWHERE = (
    "import subprocess, sys, tempfile\n"
    "subprocess.run(['mount', '--bind', tempfile.mkdtemp(), '/run'], check=True)\n"
    "from calicoctl.main import run\n"
    "sys.exit(run(['node', 'drops']))\n"
)


def run_as_nobody(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import os, sys\nos.setuid(65534)\nfrom calicoctl.main import run\n"
        "sys.exit(run(sys.argv[1:]))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


def test_what_is_told_reads_well() -> None:
    by = Denier(True, "default", "NetworkPolicy", "shop", "web", 2)
    assert denier_text(by) == "tier default, NetworkPolicy shop/web, ingress[2]"
    assert denier_text(Denier(False)) == "no policy and no profile allows it"
    assert denier_text(Denier(False, name="np/a/b")) == "a policy that is gone (np/a/b)"
    one = Dropped(0.5, by, "fd65::1", "fd65::2", 6, 40000, 80, source_pod="shop/a", lost=3)
    assert _line(one, "text") == (
        "(3 packets were not told of)\n"
        "00:00:00.500  tcp  shop/a ([fd65::1]:40000) -> [fd65::2]:80  ingress: "
        "tier default, NetworkPolicy shop/web, ingress[2]"
    )
    tree: dict[str, Any] = json.loads(_line(one, "json"))
    assert tree["by"]["rule"] == 2
