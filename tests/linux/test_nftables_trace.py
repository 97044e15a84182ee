"""Traces of rules, of nftables and of iptables-nft, and the table that makes them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_address

import pytest

from linux.nftables import trace
from linux.nftables.connection import Connection
from linux.nftables.trace import Flow, RulePlace, RuleTrace, Step
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import wait_for

TCP = 6
HERE, SIX = ip_address("127.0.0.1"), ip_address("::1")


@pytest.fixture
def space() -> Iterator[Namespace]:
    """A namespace with a loopback, whose rules the test writes; the test runs inside."""
    with network_namespace("nft-trace") as made, made.entered():
        made.run("ip", "link", "set", "lo", "up")
        yield made


def steps(space: Namespace, rule_trace: RuleTrace, address: str, port: int) -> list[Step]:
    """What is told of one attempt, when its verdict was."""
    space.run("nc", "-z", "-w", "1", address, str(port), check=False)
    found: list[Step] = []

    def told() -> bool:
        found.extend(rule_trace.read())
        return any(each.verdict == "drop" for each in found)

    wait_for(told, "the drop is told")
    # A SYN that is sent again is another packet.
    first = next(each.packet for each in found if each.verdict == "drop")
    return [each for each in found if each.packet == first]


@pytest.mark.parametrize("program", ["iptables-nft", "ip6tables-nft"])
def test_rules_of_iptables_are_told_with_number_and_comment(space: Namespace, program: str) -> None:
    space.run(program, "-N", "inner")
    space.run(program, "-A", "INPUT", "-p", "tcp", "-j", "inner")
    space.run(program, "-A", "inner", "-p", "udp", "-j", "ACCEPT")
    comment = ["-m", "comment", "--comment", "cali:abc; no more"]
    space.run(program, "-A", "inner", "-p", "tcp", "--dport", "80", *comment, "-j", "DROP")
    address = HERE if program == "iptables-nft" else SIX
    family = address.version
    assert family in (4, 6)
    with RuleTrace(4 if family == 4 else 6, [Flow(None, address, TCP, 80)]) as rule_trace:
        found = steps(space, rule_trace, str(address), 80)
        jump, drop = (each for each in found if each.kind == "rule")
        assert (jump.table, jump.chain, jump.verdict, jump.target) == (
            "filter", "INPUT", "jump", "inner",
        )  # fmt: skip
        assert (drop.chain, drop.verdict) == ("inner", "drop")
        assert jump.packet == drop.packet
        assert address.packed in jump.network
        with Connection() as connection:
            known = trace.places(connection, drop.family, drop.table, drop.chain)
        assert known[drop.handle] == RulePlace(2, "cali:abc; no more")


def test_rules_of_nftables_are_told_and_answers_too(space: Namespace) -> None:
    space.run("nft", "add", "table", "inet", "site")
    space.run("nft", "add chain inet site out { type filter hook output priority 5; }")
    space.run("nft", 'add rule inet site out tcp sport 80 counter comment "back"')
    space.run("nft", "add rule inet site out tcp flags rst drop")
    with RuleTrace(4, [Flow(HERE, HERE, TCP, 80)]) as rule_trace:
        found = steps(space, rule_trace, "127.0.0.1", 80)
        with Connection() as connection:
            known = trace.places(connection, 1, "site", "out")
    names = [known[each.handle] for each in found if each.kind == "rule"]
    assert names == [RulePlace(1, "back"), RulePlace(2, "")]
    assert all(trace.FAMILY_NAMES[each.family] == "inet" for each in found)


def test_other_connections_are_not_told(space: Namespace) -> None:
    space.run("iptables-nft", "-A", "INPUT", "-p", "tcp", "-j", "DROP")
    with RuleTrace(4, [Flow(None, HERE, TCP, 80)]) as rule_trace:
        space.run("nc", "-z", "-w", "1", "127.0.0.1", "81", check=False)
        found = steps(space, rule_trace, "127.0.0.1", 80)
    ports = {int.from_bytes(each.transport[2:4], "big") for each in found if each.transport}
    assert ports == {80}


def test_a_chain_that_is_gone_has_no_places(space: Namespace) -> None:
    with Connection() as connection:
        assert trace.places(connection, 2, "filter", "nothing") == {}


def test_the_table_goes_with_its_owner_also_when_that_is_killed(space: Namespace) -> None:
    """NTR-1"""
    with RuleTrace(4, [Flow(None, HERE, TCP, 80)]) as rule_trace:
        assert rule_trace.table in space.run("nft", "list", "tables")
    assert space.run("nft", "list", "tables") == ""
    code = (
        "import time\nfrom ipaddress import ip_address\n"
        "from linux.nftables.trace import Flow, RuleTrace\n"
        "held = RuleTrace(4, [Flow(None, ip_address('127.0.0.1'), 6, 80)])\n"
        "print('made', flush=True)\ntime.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"made\n"
        assert f"muslin-trace-{owner.pid}" in space.run("nft", "list", "tables")
        os.kill(owner.pid, signal.SIGKILL)
    wait_for(lambda: space.run("nft", "list", "tables") == "", "the kernel removes the table")
