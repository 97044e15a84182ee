"""Rules that tell of packets: they name the rule that decided, and decide nothing (TEL-1)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felix.calc.policy_model import (
    EndpointPolicy,
    EntityMatch,
    ResolvedPolicy,
    ResolvedRule,
    TierView,
    Verb,
)
from felix.rules import nflog_prefix
from felix.rules.endpoints import Verdicts, endpoint_chains, endpoint_rules
from felix.rules.hosts import host_chains, verdicts_of
from felix.rules.iptables import render_rule
from felix.rules.model import Accept, Chain, Drop, Marks, Nflog
from felix.rules.nflog_prefix import LIMIT, Said, Tell, Verdict
from felix.rules.policy import policy_chains
from libcalico.model import ResourceKey

MARKS = Marks.allocate(0xFFFF0000)
SILENT = Verdicts(Accept(), Drop())
TELLING, FLOWS = (replace(SILENT, tell=tell) for tell in (Tell.DENIED, Tell.FLOWS))
WEB = ResourceKey("NetworkPolicy", "web", "shop")
SPACE = ResourceKey("Profile", "kns.shop")
RULES = (ResolvedRule(Verb.ALLOW, protocol=6), ResolvedRule(Verb.DENY), ResolvedRule(Verb.PASS))
POLICY = EndpointPolicy(
    (TierView("security", (WEB,), (WEB,)), TierView("open", (WEB,), (), ends_in_deny=False)),
    ("kns.shop",),
)


def prefixes(chain: Chain) -> list[tuple[int, str]]:
    return [(r.action.group, r.action.prefix) for r in chain.rules if isinstance(r.action, Nflog)]


def test_who_denied_stands_in_the_prefix() -> None:
    ingress, egress = policy_chains(ResolvedPolicy(WEB, "t", RULES, RULES), 4, MARKS, TELLING)
    assert prefixes(ingress) == [(1, "DPI1|np/shop/web")]
    assert prefixes(egress) == [(2, "DPE1|np/shop/web")]
    profile, _ = policy_chains(ResolvedPolicy(SPACE, "", RULES, ()), 4, MARKS, TELLING)
    assert prefixes(profile) == [(1, "DRI1|kns.shop")]
    into, out = endpoint_chains(endpoint_rules("cali1", POLICY), MARKS, TELLING)
    assert prefixes(into) == [(1, "DPI|security"), (1, "DRI")]
    assert prefixes(out) == [(2, "DPE|security"), (2, "DRE")]


def test_for_flow_logs_each_rule_that_decides_has_a_prefix() -> None:
    ingress, egress = policy_chains(ResolvedPolicy(WEB, "t", RULES, RULES), 4, MARKS, FLOWS)
    assert prefixes(ingress) == [
        (1, "API0|np/shop/web"), (1, "DPI1|np/shop/web"), (1, "PPI2|np/shop/web"),
    ]  # fmt: skip
    assert [text[0] for _, text in prefixes(egress)] == ["A", "D", "P"]
    profile, _ = policy_chains(ResolvedPolicy(SPACE, "", RULES, ()), 4, MARKS, FLOWS)
    assert prefixes(profile) == [(1, "ARI0|kns.shop"), (1, "DRI1|kns.shop")]
    into, _ = endpoint_chains(endpoint_rules("cali1", POLICY), MARKS, FLOWS)
    assert prefixes(into) == [(1, "DPI|security"), (1, "PPI|open"), (1, "DRI")]
    limited = [r for c in (ingress, egress, into) for r in c.rules if LIMIT in r.match]
    assert limited == [], "each first packet counts"


def test_a_rule_that_denies_for_want_of_a_set_says_so() -> None:
    source = EntityMatch(sets=("s:gone",))
    rules = (ResolvedRule(Verb.PASS, source=source), ResolvedRule(Verb.ALLOW, source=source))
    unusable = frozenset({"s:gone"})
    for key in (WEB, SPACE):
        chain, _ = policy_chains(ResolvedPolicy(key, "t", rules, ()), 4, MARKS, FLOWS, unusable)
        assert [text[0] for _, text in prefixes(chain)] == ["D"]


def test_only_the_filter_table_tells_of_what_is_allowed() -> None:
    for table in ("raw", "mangle"):
        assert verdicts_of(table, FLOWS, Accept()).tell is Tell.DENIED
    assert verdicts_of("filter", FLOWS, Accept()).tell is Tell.FLOWS


@pytest.mark.parametrize("told", [TELLING, FLOWS])
def test_telling_changes_no_other_rule(told: Verdicts) -> None:
    def silenced(chain: Chain) -> Chain:
        return replace(
            chain, rules=tuple(r for r in chain.rules if not isinstance(r.action, Nflog))
        )

    policy = ResolvedPolicy(WEB, "t", RULES, RULES)
    assert [silenced(c) for c in policy_chains(policy, 6, MARKS, told)] == list(
        policy_chains(policy, 6, MARKS, SILENT)
    )
    rules = endpoint_rules("cali1", POLICY)
    assert [silenced(c) for c in endpoint_chains(rules, MARKS, told)] == endpoint_chains(
        rules, MARKS, SILENT
    )
    host = replace(POLICY, untracked=POLICY.tiers, pre_dnat=POLICY.tiers, forward=POLICY.tiers)
    for table in ("raw", "mangle", "filter"):
        own = verdicts_of(table, told, Accept())
        telling = host_chains("eth0", host, table, MARKS, own)
        silent = verdicts_of(table, SILENT, Accept())
        assert [silenced(c) for c in telling] == host_chains("eth0", host, table, MARKS, silent)
        assert any(map(prefixes, telling))


def test_it_is_told_in_front_of_the_deny_and_not_without_end() -> None:
    chain = policy_chains(ResolvedPolicy(WEB, "t", RULES, ()), 4, MARKS, TELLING)[0]
    at = next(n for n, r in enumerate(chain.rules) if isinstance(r.action, Nflog))
    assert chain.rules[at + 1].action == Drop()
    assert render_rule(chain.rules[at]) == (
        "-m mark --mark 0x40000/0x40000 -m limit --limit 10/second --limit-burst 20"
        ' --jump NFLOG --nflog-group 1 --nflog-prefix "DPI1|np/shop/web" --nflog-size 80'
    )


NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789.-", min_size=1, max_size=253)


@given(
    name=NAMES,
    space=NAMES,
    number=st.integers(0, 100_000),
    ingress=st.booleans(),
    verdict=st.sampled_from(Verdict),
)
def test_every_prefix_fits_and_reads_back(
    name: str, space: str, number: int, ingress: bool, verdict: Verdict
) -> None:
    for key in (
        ResourceKey("NetworkPolicy", name, space),
        ResourceKey("GlobalNetworkPolicy", name),
        ResourceKey("Profile", name),
    ):
        text = nflog_prefix.by_rule(key, number, ingress=ingress, verdict=verdict)
        assert len(text.encode()) <= 63
        told = nflog_prefix.read(text)
        assert told is not None
        assert (told.rule, told.ingress, told.verdict) == (number, ingress, verdict)
        denied = nflog_prefix.by_rule(key, number, ingress=ingress)
        assert nflog_prefix.with_verdict(denied, verdict) == text
        assert nflog_prefix.says_ingress(text) is ingress
        assert told.profile == (key.kind == "Profile")
        assert told.name == nflog_prefix.rule_name(key) or told.name.startswith("_")
    told = nflog_prefix.read(nflog_prefix.by_tier(name, ingress=ingress, verdict=verdict))
    assert told is not None
    assert (told.rule, told.profile, told.verdict) == (None, False, verdict)
    end = nflog_prefix.by_profiles(ingress=ingress)
    assert nflog_prefix.read(end) == Said(True, ingress, None, "")


def test_what_is_no_prefix_of_ours_is_nobodys() -> None:
    for text in ("", "D", "DXI1|a", "XPI1|np/a/b", "hello"):
        assert nflog_prefix.read(text) is None
