"""Rules that tell of denied packets: they name who denied, and decide nothing (TEL-1)."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from felix.calc.policy_model import EndpointPolicy, ResolvedPolicy, ResolvedRule, TierView, Verb
from felix.rules import nflog_prefix
from felix.rules.endpoints import Verdicts, endpoint_chains, endpoint_rules
from felix.rules.hosts import host_chains
from felix.rules.iptables import render_rule
from felix.rules.model import Accept, Chain, Drop, Marks, Nflog
from felix.rules.policy import policy_chains
from libcalico.model import ResourceKey

MARKS = Marks.allocate(0xFFFF0000)
SILENT = Verdicts(Accept(), Drop())
TELLING = replace(SILENT, tell=True)
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


def test_telling_changes_no_other_rule() -> None:
    def silenced(chain: Chain) -> Chain:
        return replace(
            chain, rules=tuple(r for r in chain.rules if not isinstance(r.action, Nflog))
        )

    policy = ResolvedPolicy(WEB, "t", RULES, RULES)
    assert [silenced(c) for c in policy_chains(policy, 6, MARKS, TELLING)] == list(
        policy_chains(policy, 6, MARKS, SILENT)
    )
    rules = endpoint_rules("cali1", POLICY)
    assert [silenced(c) for c in endpoint_chains(rules, MARKS, TELLING)] == endpoint_chains(
        rules, MARKS, SILENT
    )
    host = replace(POLICY, untracked=POLICY.tiers, pre_dnat=POLICY.tiers, forward=POLICY.tiers)
    for table in ("raw", "mangle", "filter"):
        telling = host_chains("eth0", host, table, MARKS, TELLING)
        assert [silenced(c) for c in telling] == host_chains("eth0", host, table, MARKS, SILENT)
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


@given(name=NAMES, space=NAMES, number=st.integers(0, 100_000), ingress=st.booleans())
def test_every_prefix_fits_and_reads_back(
    name: str, space: str, number: int, ingress: bool
) -> None:
    for key in (
        ResourceKey("NetworkPolicy", name, space),
        ResourceKey("GlobalNetworkPolicy", name),
        ResourceKey("Profile", name),
    ):
        text = nflog_prefix.by_rule(key, number, ingress=ingress)
        assert len(text.encode()) <= 63
        told = nflog_prefix.read(text)
        assert told is not None
        assert (told.rule, told.ingress) == (number, ingress)
        assert told.profile == (key.kind == "Profile")
        assert told.name == nflog_prefix.rule_name(key) or told.name.startswith("_")
    told = nflog_prefix.read(nflog_prefix.by_tier(name, ingress=ingress))
    assert told is not None
    assert (told.rule, told.profile) == (None, False)
    assert nflog_prefix.read(nflog_prefix.by_profiles(ingress=ingress)) == nflog_prefix.Denial(
        True, ingress, None, ""
    )


def test_what_is_no_prefix_of_ours_is_nobodys() -> None:
    for text in ("", "D", "DXI1|a", "API1|np/a/b", "hello"):
        assert nflog_prefix.read(text) is None
