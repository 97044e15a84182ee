"""What was rendered of a large policy is not remembered beyond the chain that had it."""

from __future__ import annotations

from typing import Any

from felix.dataplane.rules import iptables, nftables
from felix.dataplane.rules.large_chains import LARGE, LargeChains
from felix.rules.model import Accept, Chain, Rule
from linux.iptables import Table
from linux.nftables import Ruleset


def large(name: str = "cali-pi-large") -> Chain:
    return Chain(name, tuple(Rule(Accept(), (), (f"{number}",)) for number in range(LARGE)))


def test_only_many_rules_are_named_once_they_are_gone() -> None:
    chains, first, second = LargeChains(), large().rules, large().rules
    assert chains.now("a", first[:-1]) == chains.now("a") == 0
    assert chains.now("a", first) == chains.now("a", first) == 0
    assert chains.now("a", second) == id(first)
    assert chains.now("a", ()) == id(second)
    assert chains.now("a") == 0


def test_cycles_of_a_large_policy_leave_nothing_in_nftables() -> None:
    with Ruleset([4], "calico") as rules:
        table = nftables.ModelTable(rules, 4, "filter")
        assert_cycles_leave_nothing(table, table)


def test_cycles_of_a_large_policy_leave_nothing_in_iptables() -> None:
    texts = iptables.Texts()
    table = iptables.ModelTable(Table("filter", 4, "nft", iptables.SCHEME), texts)
    assert_cycles_leave_nothing(table, texts)


def assert_cycles_leave_nothing(table: Any, memory: Any) -> None:
    """A large chain comes, is another one, and goes; `memory` has what was rendered of it."""
    for _ in range(3):
        for _ in range(2):  # other rules in the place of the first ones
            chain = large()
            list(table.prepare(chain.rules))
            table.want(chain)
            assert len(memory._known) == 1
        table.unwant(chain.name)
    assert not memory._known
    assert not memory._ahead
