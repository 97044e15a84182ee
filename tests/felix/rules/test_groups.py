"""GRP-1: policies of one selector in one chain decide as they do one by one."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from felix.calc.policy_model import EndpointPolicy, Run, TierView
from felix.rules.endpoints import Verdicts, endpoint_chains, endpoint_rules, tier_chains
from felix.rules.groups import BLOCK, group_chain, groups, named
from felix.rules.model import Accept, Chain, Drop, Goto, Jump, Marks, Return, Rule, set_bits
from felix.rules.names import policy_chain
from libcalico.model.keys import ResourceKey
from tests.felix.walk import Kernel, Packet

MARKS = Marks.allocate(0xFFFF0000)
VERDICTS = Verdicts(Accept(), Drop())
DECISIONS = {
    "allow": (Rule(set_bits(MARKS.accept)),),
    "pass": (Rule(set_bits(MARKS.passed)),),
    "deny": (Rule(Drop()),),
    "nothing": (),
}


def keys(count: int) -> tuple[ResourceKey, ...]:
    return tuple(ResourceKey("GlobalNetworkPolicy", f"g{n}") for n in range(count))


def runs(cuts: set[int], count: int) -> tuple[Run, ...]:
    edges = [0, *sorted(cut for cut in cuts if 0 < cut < count), count]
    pairs = pairwise(edges)
    return tuple(Run(first, end, f"s{first}") for first, end in pairs if end - first > 1)


def walked(tier: TierView, decisions: list[str], *, ingress: bool) -> tuple[str, list[str]]:
    """What becomes of a packet, and the policies that it met."""
    prefix = "cali-pi-" if ingress else "cali-po-"
    policies = tier.ingress if ingress else tier.egress
    chains = {
        policy_chain(prefix, key): Chain(policy_chain(prefix, key), DECISIONS[decision])
        for key, decision in zip(policies, decisions, strict=True)
    }
    for group in groups(tier, ingress=ingress):
        chain = group_chain(group, MARKS)
        chains[chain.name] = chain
    endpoint = endpoint_rules("cali1", EndpointPolicy((tier,)))
    for chain in endpoint_chains(endpoint, MARKS, VERDICTS):
        chains[chain.name] = chain
    own = f"cali-{'t' if ingress else 'f'}w-cali1"
    chains["start"] = Chain("start", (Rule(Jump(own)), Rule(Accept())))
    reachable = {own, "start"}
    for chain in (chains[own], *chains.values()):
        for rule in chain.rules:
            if isinstance(rule.action, Jump | Goto):
                reachable.add(rule.action.chain)
    kernel = Kernel({name: chain for name, chain in chains.items() if name in reachable})
    verdict, _ = kernel.walk("start", Packet())
    return verdict, [name for name in kernel.visited if name.startswith(prefix)]


@given(
    st.lists(st.sampled_from([*DECISIONS, "nothing", "nothing"]), min_size=1, max_size=14),
    st.sets(st.integers(1, 13)),
    st.booleans(),
    st.booleans(),
)
def test_a_group_decides_as_its_policies(
    decisions: list[str], cuts: set[int], ends_in_deny: bool, ingress: bool
) -> None:
    policies = keys(len(decisions))
    found = runs(cuts, len(decisions))
    if ingress:
        grouped = TierView("t", policies, (), ends_in_deny, found, ())
        plain = TierView("t", policies, (), ends_in_deny)
    else:
        grouped = TierView("t", (), policies, ends_in_deny, (), found)
        plain = TierView("t", (), policies, ends_in_deny)
    said = walked(grouped, decisions, ingress=ingress)
    assert said == walked(plain, decisions, ingress=ingress)
    assert len(list(named(grouped, ingress=ingress))) == len(decisions) - sum(
        run.end - run.first - 1 for run in found
    )


def test_a_group_is_named_for_what_it_holds() -> None:
    """The digest of its lines, cut to what a chain's name takes; written independently."""
    tier = TierView("t", keys(3), keys(2), True, (Run(1, 3, "all()"),), (Run(0, 2, "all()"),))
    ingress, egress = tier_chains((tier,))[0].ingress, tier_chains((tier,))[0].egress
    digest = hashlib.sha3_224(b"all()\ninbound\n2\ngnp/g1\ngnp/g2\n").digest()
    name = "cali-gi-" + urlsafe_b64encode(digest).decode()[:20]
    assert ingress == ("cali-pi-gnp/g0", name)
    assert len(name) == 28
    assert egress[0].startswith("cali-go-")


def test_a_decided_packet_leaves_after_five_jumps_at_most() -> None:
    tier = TierView("t", keys(12), (), True, (Run(0, 12, "all()"),))
    (group,) = groups(tier, ingress=True)
    rules = group_chain(group, MARKS).rules
    looks = [number for number, rule in enumerate(rules) if rule.action == Return()]
    assert looks == [BLOCK, 2 * BLOCK + 1]
    unguarded = [number for number, rule in enumerate(rules) if not rule.match]
    assert unguarded == [0, BLOCK + 1, 2 * BLOCK + 2]
