"""What the filter tables are told: only referenced chains, only what changed, never a hole."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from felix.calc.policy_model import (
    EndpointPolicy,
    EntityMatch,
    HostEndpoint,
    PolicyChanges,
    ResolvedPolicy,
    ResolvedRule,
    TierView,
    Verb,
)
from felix.dataplane.rules.chain_refcounts import profile_key
from felix.dataplane.rules.chain_store import ChainStore
from felix.rules.hosts import DISPATCH
from felix.rules.inputs import RuleSettings
from felix.rules.iptables import render_rules
from felix.rules.model import Chain, Rule
from libcalico.model.keys import ResourceKey
from tests.size import examples
from tests.support.rulebook import WrittenBook

KEYS = [ResourceKey("NetworkPolicy", name, "ns") for name in "ab"]
KEYS.append(ResourceKey("GlobalNetworkPolicy", "g"))
PROFILES = ["p", "q"]
INTERFACES = ["cali01", "cali02", "cali11"]


FILTER = (4, "filter")


class Recorder:
    """A table that remembers what it was told."""

    def __init__(self) -> None:
        self.chains: dict[str, tuple[str, ...]] = {}
        self.told = 0

    def prepare(self, rules: Sequence[Rule]) -> Iterator[None]:
        return iter(())

    def want(self, chain: Chain) -> None:
        self.told += 1
        self.chains[chain.name] = render_rules(chain.rules)

    def unwant(self, name: str) -> None:
        self.told += 1
        self.chains.pop(name, None)


def make_book() -> tuple[ChainStore, Recorder]:
    table = Recorder()
    book = WrittenBook({FILTER: table}, RuleSettings())
    book.write_all()
    return book, table


def policy(key: ResourceKey, *sets: str) -> ResolvedPolicy:
    rules = tuple(ResolvedRule(Verb.ALLOW, source=EntityMatch(sets=(each,))) for each in sets)
    return ResolvedPolicy(key, "default", rules, rules)


def told(*policies: ResolvedPolicy) -> PolicyChanges:
    changes = PolicyChanges()
    for each in policies:
        if each.key.kind == "Profile":
            changes.profiles[each.key.name] = each
        else:
            changes.policies[each.key] = each
    return changes


def endpoint(
    ingress: Sequence[ResourceKey] = (),
    egress: Sequence[ResourceKey] = (),
    profiles: Sequence[str] = (),
) -> EndpointPolicy:
    tier = TierView("default", tuple(ingress), tuple(egress))
    return EndpointPolicy((tier,) if ingress or egress else (), tuple(profiles))


def policy_chains_of(table: Recorder) -> set[str]:
    return {name for name in table.chains if re.match("cali-p(i|o|ri|ro)-", name)}


def test_only_referenced_chains_are_programmed() -> None:
    book, table = make_book()
    book.take(told(policy(KEYS[0], "s:a"), policy(profile_key("p"))))
    assert policy_chains_of(table) == set()
    book.set_endpoint("cali01", endpoint(ingress=[KEYS[0]], profiles=["p"]))
    assert policy_chains_of(table) == {"cali-pi-np/ns/a", "cali-pri-p", "cali-pro-p"}
    book.set_endpoint("cali02", endpoint(ingress=[KEYS[0]], egress=[KEYS[0]]))
    book.remove_endpoint("cali01")
    assert policy_chains_of(table) == {"cali-pi-np/ns/a", "cali-po-np/ns/a"}
    book.remove_endpoint("cali02")
    assert policy_chains_of(table) == set()
    assert table.chains.keys() == {"cali-from-wl-dispatch", "cali-to-wl-dispatch"}


def test_a_policy_that_nobody_told_denies() -> None:
    book, table = make_book()
    book.set_endpoint("cali01", endpoint(ingress=[KEYS[0]]))
    assert "--jump DROP" in table.chains["cali-pi-np/ns/a"][-1]
    book.take(told(policy(KEYS[0], "s:a")))
    assert "DROP" not in " ".join(table.chains["cali-pi-np/ns/a"])
    changes = PolicyChanges(policies={KEYS[0]: None})
    book.forget(changes)
    assert "--jump DROP" in table.chains["cali-pi-np/ns/a"][-1]


def test_a_workload_has_chains_in_the_families_of_its_addresses() -> None:
    """RBK-5: in the other one it is an unknown interface, which dispatch drops (DSP-1)."""
    four, six = Recorder(), Recorder()
    book = WrittenBook({FILTER: four, (6, "filter"): six}, RuleSettings())
    book.write_all()
    empty = dict(six.chains)
    assert all("DROP" in rules[-1] for rules in empty.values()), empty
    single = frozenset({4})
    book.set_endpoint("cali01", endpoint(ingress=[KEYS[0]]), single)
    assert {"cali-fw-cali01", "cali-tw-cali01"} <= four.chains.keys()
    assert {n: r for n, r in six.chains.items() if "-p" not in n} == empty
    book.set_endpoint("cali01", endpoint(ingress=[KEYS[0]]), frozenset({4, 6}))
    assert six.chains == four.chains, "it was given an address of the other one"
    book.configure(RuleSettings(prefixes=("tap", "cali")))
    assert six.chains == four.chains
    book.set_endpoint("cali01", endpoint(ingress=[KEYS[0]]), single)
    assert "cali01" not in str({n: r for n, r in six.chains.items() if "-p" not in n})
    assert book.narrowed, "its old rules of the family go at once"
    book.narrowed = False
    book.remove_endpoint("cali01")
    assert six.chains == four.chains
    assert not book.narrowed, "an interface that is gone can wait"


def test_a_change_costs_what_it_touches() -> None:
    """RBK: two hundred endpoints with a hundred policies; nothing is rendered that is the same."""
    book, table = make_book()
    keys = [ResourceKey("GlobalNetworkPolicy", f"g{n}") for n in range(100)]
    book.take(told(*(policy(key, "s:a") for key in keys)))
    for n in range(200):
        book.set_endpoint(f"cali{n:03}", endpoint(ingress=keys, profiles=["p"]))
    before = book.renders
    book.take(told(policy(keys[0], "s:b")))
    assert book.renders - before == 1, "its one chain that is referenced"
    before = book.renders
    book.set_endpoint("cali7xx", endpoint(ingress=keys, profiles=["p"]))
    # Both chains of its own, both chains of its bin, and of the bins as the bin is new.
    assert book.renders - before <= 6
    before, heard = book.renders, table.told
    book.set_endpoint("cali7xx", endpoint(ingress=keys, profiles=["p"]))
    book.take(told(policy(keys[0], "s:b")))
    assert (book.renders, table.told) == (before, heard), "the same again is nothing"


def test_a_policy_whose_set_is_not_written_is_closed_until_it_is() -> None:
    book, table = make_book()
    book.take(told(policy(KEYS[0], "s:a", "s:b"), policy(KEYS[1], "s:b")))
    book.set_endpoint("cali01", endpoint(ingress=KEYS[:2]))
    before = dict(table.chains)
    book.trust(frozenset({"s:a"}))
    assert "cali40s:a" not in " ".join(table.chains["cali-pi-np/ns/a"])
    assert "cali40s:b" in " ".join(table.chains["cali-pi-np/ns/a"])
    assert table.chains["cali-pi-np/ns/b"] == before["cali-pi-np/ns/b"]
    assert book.degraded().keys() == {KEYS[0]}
    assert "s:a" in book.degraded()[KEYS[0]]
    book.trust(frozenset())
    assert table.chains == before
    assert book.degraded() == {}


def test_other_settings_reach_every_chain() -> None:
    book, table = make_book()
    book.take(told(policy(KEYS[0], "s:a")))
    book.set_endpoint("cali01", endpoint(ingress=[KEYS[0]]))
    book.configure(RuleSettings(prefixes=("tap", "cali")))
    fresh, expected = make_book()
    expected.chains.clear()
    fresh = WrittenBook({FILTER: expected}, RuleSettings(prefixes=("tap", "cali")))
    fresh.write_all()
    fresh.take(told(policy(KEYS[0], "s:a")))
    fresh.set_endpoint("cali01", endpoint(ingress=[KEYS[0]]))
    assert table.chains == expected.chains


POLICIES = st.sampled_from([*KEYS, *map(profile_key, PROFILES)])
SETS = st.lists(st.sampled_from(["s:a", "s:b"]), max_size=2, unique=True)
ENDPOINTS = st.builds(
    endpoint,
    st.lists(st.sampled_from(KEYS), max_size=3, unique=True),
    st.lists(st.sampled_from(KEYS), max_size=3, unique=True),
    st.lists(st.sampled_from(PROFILES), max_size=2, unique=True),
)
STEPS = st.one_of(
    st.tuples(st.just("policy"), POLICIES, SETS),
    st.tuples(st.just("forget"), POLICIES, st.none()),
    st.tuples(st.just("endpoint"), st.sampled_from(INTERFACES), ENDPOINTS),
    st.tuples(st.just("leave"), st.sampled_from(INTERFACES), st.none()),
    st.tuples(st.just("trust"), st.sets(st.sampled_from(["s:a", "s:b"])), st.none()),
)


@settings(max_examples=examples(150))
@given(st.lists(STEPS, max_size=25))
def test_every_history_ends_in_the_same_chains(steps: list[tuple[str, object, object]]) -> None:
    """RBK-1 after each step, and in the end what a book tells that knows the end only."""
    book, table = make_book()
    policies: dict[ResourceKey, ResolvedPolicy] = {}
    endpoints: dict[str, EndpointPolicy] = {}
    unusable: frozenset[str] = frozenset()
    for kind, what, value in steps:
        match kind, what, value:
            case "policy", ResourceKey() as key, list() as sets:
                policies[key] = policy(key, *sets)
                book.take(told(policies[key]))
            case "forget", ResourceKey() as key, _:
                policies.pop(key, None)
                gone = PolicyChanges()
                if key.kind == "Profile":
                    gone.profiles[key.name] = None
                else:
                    gone.policies[key] = None
                book.forget(gone)
            case "endpoint", str() as interface, EndpointPolicy() as found:
                endpoints[interface] = found
                book.set_endpoint(interface, found)
            case "leave", str() as interface, _:
                endpoints.pop(interface, None)
                book.remove_endpoint(interface)
            case "trust", set() as lost, _:
                unusable = frozenset(map(str, lost))
                book.trust(unusable)
        for name, rules in table.chains.items():
            for goal in re.findall(r"--(?:jump|goto) (cali-\S+)", " ".join(rules)):
                assert goal in table.chains, (name, goal)
    fresh, expected = make_book()
    fresh.take(told(*policies.values()))
    fresh.trust(unusable)
    for interface, found in endpoints.items():
        fresh.set_endpoint(interface, found)
    assert {n: sorted(r) if "dispatch" in n or "known" in n else r
            for n, r in table.chains.items()} == \
           {n: sorted(r) if "dispatch" in n or "known" in n else r
            for n, r in expected.chains.items()}  # fmt: skip


def test_host_endpoints_name_policies_in_the_tables_where_they_work() -> None:
    """HBK-1."""
    tables = {(4, name): Recorder() for name in ("raw", "mangle", "filter")}
    book = WrittenBook(tables, RuleSettings())
    book.write_all()
    book.take(told(*(policy(key, "s:a") for key in KEYS), policy(profile_key("p"))))

    def tier(key: ResourceKey) -> tuple[TierView, ...]:
        return (TierView("default", (key,), (key,)),)

    decides = EndpointPolicy(tier(KEYS[0]), ("p",), tier(KEYS[1]), (), tier(KEYS[2]))
    key = ResourceKey("HostEndpoint", "h")
    book.set_host_endpoints({"eth0": HostEndpoint(key, "eth0", policy=decides)})
    for (_, name), recorder in tables.items():
        assert set(DISPATCH[name]) <= recorder.chains.keys(), "the static chains name them"
    named = {table: policy_chains_of(recorder) for (_, table), recorder in tables.items()}
    assert named == {
        "raw": {"cali-pi-np/ns/b", "cali-po-np/ns/b"},
        "mangle": {"cali-po-np/ns/a", "cali-pro-p"},
        "filter": {"cali-pi-np/ns/a", "cali-po-np/ns/a", "cali-pi-gnp/g", "cali-po-gnp/g",
                   "cali-pri-p", "cali-pro-p"},
    }  # fmt: skip
    before = book.renders
    book.set_host_endpoints({"eth0": HostEndpoint(key, "eth0", policy=decides)})
    assert book.renders == before, "the same again is nothing"
    book.set_host_endpoints({})
    assert all(policy_chains_of(recorder) == set() for recorder in tables.values())
    assert {table: set(recorder.chains) for (_, table), recorder in tables.items()} == {
        "raw": set(),
        "mangle": set(),
        "filter": {"cali-from-wl-dispatch", "cali-to-wl-dispatch"},
    }


def test_a_refused_chain_is_closed_until_it_is_another_or_taken() -> None:
    """RBK-3."""
    book, table = make_book()
    book.take(told(policy(KEYS[0], "s:a"), policy(KEYS[1], "s:b")))
    book.set_endpoint("cali01", endpoint(ingress=KEYS[:2], egress=KEYS[:1]))
    before = dict(table.chains)
    assert book.refuse(FILTER, "cali-pi-np/ns/a", "no such match")
    assert "--jump DROP" in table.chains["cali-pi-np/ns/a"][0]
    assert len(table.chains["cali-pi-np/ns/a"]) == 1
    assert {n: r for n, r in table.chains.items() if r != before[n]}.keys() == {"cali-pi-np/ns/a"}
    assert "no such match" in book.degraded()[KEYS[0]]
    assert not book.refuse(FILTER, "cali-pi-np/ns/a", "no such match"), "that is known"
    assert not book.refuse(FILTER, "cali-from-wl-dispatch", "no such match"), "no policy's"
    assert [chain.name for chain in book.refused[FILTER]] == ["cali-pi-np/ns/a"]
    book.accept(FILTER, "cali-pi-np/ns/a")
    assert (table.chains, book.degraded()) == (before, {})
    book.refuse(FILTER, "cali-pi-np/ns/a", "no such match")
    book.take(told(policy(KEYS[0], "s:c")))
    assert "s:c" in " ".join(table.chains["cali-pi-np/ns/a"]), "another policy has its chance"
    book.refuse(FILTER, "cali-pi-np/ns/a", "no such match")
    book.remove_endpoint("cali01")
    assert book.degraded() == {}
