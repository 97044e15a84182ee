"""LRG-1, LRG-2: pods overtake a policy of very many rules; counted in work, not in seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from felix.calc.policy import large
from felix.calc.policy import rules as reading
from felix.dataplane.rules import iptables
from felix.dataplane.rules.iptables import Texts
from felix.dataplane.rules.nftables import ModelTable
from felix.rules import names, nftables
from felix.rules import policy as making
from libcalico.model import ResourceKey
from linux.nftables import Ruleset
from tests.felix.dataplane.test_chain_store_steps import Node
from tests.felix.policy_objects import Object, allow, namespace, pod, policy
from tests.size import examples

MOST = 200
"""Rules that one step between two turns of the loop may read, make or render."""


def many(count: int, app: str = "a", port: int = 1) -> Object:
    """A policy of so many different rules, which no test before this one had."""
    ingress = [
        allow(
            protocol="TCP",
            source={"nets": [f"10.{n >> 8}.{n & 255}.0/24"]},
            destination={"ports": [port]},
        )
        for n in range(count)
    ]
    return policy("many", selector=f"app == '{app}'", ingress=ingress, types=["Ingress"])


class Prepared(Node):
    """A node whose large policies are prepared beside its turns."""

    def __init__(self, *objects: Object) -> None:
        super().__init__(*objects)
        self.turn()
        self.calc.policy.large.wake = lambda: None

    def turn(self) -> None:
        for _ in self.update():
            pass

    def preparing(self) -> Iterator[None]:
        return self.calc.policy.preparing(self.desire.warming)

    def ruled(self) -> set[str]:
        """The pods whose rules stand."""
        assert self.desire.book is not None
        return set(self.desire.book.endpoints)

    def names_policy(self, interface: str) -> bool:
        """Whether a pod's rules name the large policy."""
        chain = self.tables.places[4, "filter"].chains[f"cali-tw-{interface}"]
        return any("cali-pi-" in getattr(rule.action, "chain", "") for rule in chain.rules)


def interface(key: ResourceKey, node: Node) -> str:
    return next(
        e.interface for e in node.calc.endpoints.active(("cali",))[0].values() if e.key == key
    )


def test_pods_overtake_a_policy_that_does_not_select_them() -> None:
    old, other, selected = (
        pod("old", "10.0.0.1", {"app": "a"}),
        pod("other", "10.0.0.2", {"app": "b"}),
        pod("selected", "10.0.0.3", {"app": "a"}),
    )
    node = Prepared(namespace("default"), old)
    node.put(many(1000), other, selected)
    node.turn()
    names = {key.name: interface(key, node) for key, _ in (old, other, selected)}
    assert node.ruled() == {interface(key, node) for key, _ in (old, other)}
    assert not node.names_policy(interface(old[0], node)), "it keeps what it had"
    for _ in node.preparing():
        pass
    node.turn()
    assert node.ruled() == set(names.values())
    assert node.names_policy(interface(old[0], node))
    assert node.names_policy(interface(selected[0], node))
    assert not node.names_policy(interface(other[0], node))
    node.put((many(1)[0], None))
    node.turn()
    assert not node.names_policy(interface(old[0], node)), "a policy that goes is no large one"


def test_a_pod_made_anew_under_its_name_does_not_start_with_what_the_former_had() -> None:
    """Its ADD may come before the DEL of the former, which had other labels."""
    key, former = pod("web", "10.0.0.1", {"app": "b"})
    _, fresh = pod("web", "10.0.0.1", {"app": "a"})
    name = fresh.spec.interfaceName
    anew = replace(fresh, spec=replace(fresh.spec, containerID="anew"))
    node = Prepared(namespace("default"), (key, former))
    node.put(many(1000, port=4), (key, fresh))
    node.turn()
    assert node.ruled() == {name}, "relabelled, it runs on as it was"
    node.put((key, anew))
    node.turn()
    assert node.ruled() == set()
    for _ in node.preparing():
        pass
    node.turn()
    assert node.ruled() == {name}
    assert node.names_policy(name)


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> Callable[[], int]:
    """How often a function was called since the last question."""
    original, calls = getattr(owner, name), [0]

    def spy(*given_: Any, **named: Any) -> Any:
        calls[0] += 1
        return original(*given_, **named)

    def since() -> int:
        found, calls[0] = calls[0], 0
        return found

    monkeypatch.setattr(owner, name, spy)
    return since


def test_no_step_does_much_and_the_turn_finds_it_done(monkeypatch: pytest.MonkeyPatch) -> None:
    read = counted(monkeypatch, reading, "_read")
    made = counted(monkeypatch, making, "_rule")
    node = Prepared(namespace("default"), pod("old", "10.0.0.1", {"app": "a"}))
    read(), made()
    node.put(many(5000, port=2))
    node.turn()
    assert (read(), made()) == (0, 0), "nothing of it is done in a turn"
    total = 0
    for _ in node.preparing():
        steps = read(), made()
        assert max(steps) <= MOST
        total += sum(steps)
    assert total >= 5000 * 3, "read once, and made for both families"
    for _ in node.update():
        assert (read(), made()) <= (0, 1)
    assert node.names_policy(interface(pod("old", "10.0.0.1")[0], node))


@pytest.mark.parametrize("backend", ["iptables", "nftables"])
def test_a_long_chain_is_rendered_in_steps(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(namespace("default"), pod("old", "10.0.0.1", {"app": "a"}), many(3000, port=3))
    for _ in node.update():
        pass
    chains = node.tables.places[4, "filter"].chains.values()
    rules = max((chain.rules for chain in chains), key=len)
    assert len(rules) >= 3000
    steps: Iterator[None]
    use: Callable[[], object]
    if backend == "iptables":
        rendered = counted(monkeypatch, iptables, "render_rule")
        texts = Texts()
        steps, use = texts.prepare(rules), partial(texts.of, rules)
    else:
        rendered = counted(monkeypatch, nftables, "render_rule")
        with Ruleset((4,), "none") as ruleset:
            table = ModelTable(ruleset, 4, "filter")
        steps, use = table.prepare(rules), partial(table.packed, rules)
    for _ in steps:
        assert rendered() <= MOST
    rendered()
    use()
    assert rendered() == 0


PODS = [pod(f"here{n}", f"10.0.0.{n}", {"app": "ab"[n % 2]}) for n in range(3)]
WORDS = st.sampled_from(
    [*PODS, *((key, None) for key, _ in PODS), many(3), many(4), many(5, "b"), many(1),
     (many(1)[0], None)]
)  # fmt: skip


@settings(deadline=None, max_examples=examples(150))
@given(st.lists(st.tuples(WORDS, st.booleans(), st.integers(0, 30)), max_size=12))
def test_after_quiet_it_is_as_without_preparation(story: list[tuple[Object, bool, int]]) -> None:
    """LRG-2: whatever came in whatever order, turns and steps of preparation between."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large, "LARGE", 3)
        node = Prepared(namespace("default"))
        final: dict[ResourceKey, Any] = dict([namespace("default")])
        steps = node.preparing()
        for word, turn, count in story:
            node.put(word)
            final[word[0]] = word[1]
            if turn:
                node.turn()
                node.tables.check()
            for _ in range(count):
                if next(steps, steps) is steps:
                    steps = node.preparing()
        node.turn()
        while node.calc.policy.large:
            for _ in (*steps, *node.preparing()):
                pass
            node.turn()
        node.tables.check()
        fresh = Node(*final.items())
        for _ in fresh.update():
            pass
        assert node.tables.chains == fresh.tables.chains
        assert node.told() == fresh.told()


def rules_of(node: Prepared, chain: str) -> list[str]:
    chains = node.tables.places[4, "filter"].chains
    return [str(rule) for rule in chains[chain].rules] if chain in chains else []


def has_all(node: Prepared) -> bool:
    """Whether the large policy is in force."""
    for _ in node.preparing():
        pass
    node.turn()
    return len(rules_of(node, names.policy_chain(names.POLICY_INGRESS, many(1)[0]))) > 1000


@pytest.mark.parametrize("how", ["deleted", "pod relabelled", "selector changed"])
def test_a_policy_that_ends_keeps_its_rules_for_who_still_has_it(how: str) -> None:
    """The pod is held for the large policy, and goes on with what it had."""
    old = pod("old", "10.0.0.1", {"app": "a", "more": "yes"})
    nets = {"nets": ["10.1.0.0/16"], "selector": "app == 'x'"}
    ending = partial(policy, "ends", order=1, ingress=[allow(source=nets)], types=["Ingress"])
    ends = ending(selector="more == 'yes'")
    node = Prepared(namespace("default"), old, ends, many(3))
    node.turn()
    chain = names.policy_chain(names.POLICY_INGRESS, ends[0])
    before, sets = rules_of(node, chain), node.calc.policy.sets.keys()
    node.put(many(1000))
    node.turn()
    match how:
        case "deleted":
            node.put((ends[0], None))
        case "pod relabelled":
            node.put(pod("old", "10.0.0.1", {"app": "a"}))
        case _:
            node.put(ending(selector="more == 'no'"))
    node.turn()
    assert rules_of(node, chain) == before
    assert node.calc.policy.sets.keys() == sets
    assert not node.calc.policy.dirty
    assert has_all(node)
    assert rules_of(node, chain) == []
    assert ends[0] not in node.calc.policy.policies
    assert not node.calc.policy.sets


def test_a_profile_that_ends_keeps_its_rules_for_who_still_has_it() -> None:
    old = partial(pod, "old", "10.0.0.1", {"app": "a"})
    extra = (ResourceKey("Profile", "extra"), namespace("default")[1])
    node = Prepared(namespace("default"), extra, old(profiles=["kns.default", "extra"]), many(3))
    node.turn()
    chain = names.policy_chain(names.PROFILE_INGRESS, extra[0])
    before = rules_of(node, chain)
    node.put(many(1000))
    node.put(old(profiles=["kns.default"]))
    node.turn()
    assert rules_of(node, chain) == before
    assert has_all(node)
    assert rules_of(node, chain) == []


def test_a_policy_that_ends_and_comes_back_meanwhile() -> None:
    old = pod("old", "10.0.0.1", {"app": "a"})
    back = policy("back", selector="app == 'a'", ingress=[allow(protocol="TCP")], types=["Ingress"])
    node = Prepared(namespace("default"), old, back, many(3))
    node.turn()
    chain = names.policy_chain(names.POLICY_INGRESS, back[0])
    before = rules_of(node, chain)
    node.put(many(1000))
    node.put((back[0], None))
    node.turn()
    node.put(back)
    assert has_all(node)
    assert rules_of(node, chain) == before
