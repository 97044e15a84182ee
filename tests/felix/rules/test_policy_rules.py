"""Policies as chains: Calico's own hashes, the text of each match, and blocks of choices."""

from __future__ import annotations

import base64
import hashlib
import itertools
from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felix.calc.policy_model import ANYONE, EntityMatch, ResolvedPolicy, ResolvedRule, Verb
from felix.rules.endpoints import Verdicts
from felix.rules.fragments import MOST_PORTS, multiports
from felix.rules.iptables import render_rule
from felix.rules.model import Accept, Chain, Drop, Log, Marks, Ports, Reject
from felix.rules.policy import policy_chains
from libcalico.model.keys import ResourceKey
from tests.felix.walk import Kernel, Packet

MARKS = Marks.allocate(0xFFFF0000)
VERDICTS = Verdicts(Accept(), Drop())
GPOL = ResourceKey("GlobalNetworkPolicy", "gpol")
NPOL = ResourceKey("NetworkPolicy", "npol", "default")
NET1 = ResourceKey("Profile", "net1")
ALLOW, DENY = ResolvedRule(Verb.ALLOW), ResolvedRule(Verb.DENY)


def chain_of(*rules: ResolvedRule, key: ResourceKey = GPOL, version: int = 4) -> Chain:
    policy = ResolvedPolicy(key, "default", rules, ())
    return policy_chains(policy, version, MARKS, VERDICTS)[0]


def text_of(*rules: ResolvedRule, key: ResourceKey = GPOL, version: int = 4) -> list[str]:
    comment = '-m comment --comment "GlobalNetworkPolicy gpol ingress" '
    texts = [render_rule(rule) for rule in chain_of(*rules, key=key, version=version).rules]
    return [text.removeprefix(comment) for text in texts]


# -- what Calico programmed --------------------------------------------------------------------

SELECTED = EntityMatch(sets=("s:rV61RKD1Q8wo61pyeB0j2rw",))
RECORDED = {
    "cali-pi-gnp/gpol": "AhwlSFl7vxkr39rq",
    "cali-po-gnp/gpol": "Sb0I15_mOlZogT2r",
    "cali-pi-np/default/npol": "t_kuHqlTyBAB4R8j vcDQxo4CdIPuXUPk",
    "cali-pri-net1": "DDgLSVhmcHVSzf6L",
    "cali-pro-net1": "wy6z8Z8fqAXCGRyN",
}


def test_chains_hash_as_calicos_do() -> None:
    """Recorded from a node of Calico's: names, comments, matches, marks and order are equal."""
    web = EntityMatch(ports=((80, 80), (8000, 8010)))
    same = EntityMatch(sets=("s:dmxNq1uG7U174OAEUuueUSA",))
    policies = [
        ResolvedPolicy(
            GPOL,
            "default",
            (replace(ALLOW, protocol=6, source=SELECTED, destination=web),),
            (ALLOW,),
        ),
        ResolvedPolicy(NPOL, "default", (replace(DENY, protocol=17),), ()),
        ResolvedPolicy(NET1, "", (replace(ALLOW, source=same),), (ALLOW,)),
    ]
    chains = [c for p in policies for c in policy_chains(p, 4, MARKS, VERDICTS)]
    found = {chain.name: hashes(chain) for chain in chains}
    assert {name: found[name] for name in RECORDED} == RECORDED


def hashes(chain: Chain) -> str:
    digest, out = hashlib.sha224(chain.name.encode()).digest(), []
    for rule in chain.rules:
        text = f"-A {chain.name} HASH {render_rule(rule)}"
        digest = hashlib.sha224(digest + text.encode()).digest()
        out.append(base64.urlsafe_b64encode(digest).decode()[:16])
    return " ".join(out)


# -- text --------------------------------------------------------------------------------------


def test_an_empty_policy_still_says_whose_chain_it_is() -> None:
    (rule,) = policy_chains(ResolvedPolicy(NPOL, "default", (), ()), 4, MARKS, VERDICTS)[1].rules
    assert render_rule(rule) == '-m comment --comment "NetworkPolicy default/npol egress"'


def test_every_match_in_its_place() -> None:
    side = EntityMatch(
        nets=(ip_network("10.0.0.0/8"),),
        sets=("s:a",),
        not_sets=("s:b",),
        ports=((1, 1),),
        not_ports=((2, 3),),
        not_named_ports=("n:d",),
        services=("svc:e",),
    )
    rule = ResolvedRule(Verb.LOG, protocol=132, source=side, destination=side)
    (text,) = text_of(rule)
    assert text == (
        "-p sctp --source 10.0.0.0/8 -m set --match-set cali40s:a src "
        "-m set --match-set cali40svc:e src,src -m multiport --source-ports 1 "
        "--destination 10.0.0.0/8 -m set --match-set cali40s:a dst "
        "-m set --match-set cali40svc:e dst,dst -m multiport --destination-ports 1 "
        "-m set ! --match-set cali40s:b src -m multiport ! --source-ports 2:3 "
        "-m set ! --match-set cali40n:d src,src -m set ! --match-set cali40s:b dst "
        "-m multiport ! --destination-ports 2:3 -m set ! --match-set cali40n:d dst,dst "
        '--jump LOG --log-prefix "calico-packet: " --log-level 5'
    )


def test_icmp_is_the_tables_own() -> None:
    ping = replace(ALLOW, icmp=(8, None))
    assert text_of(replace(ping, protocol=1))[0].startswith("-p icmp -m icmp --icmp-type 8 ")
    assert text_of(replace(ping, protocol=1, icmp=(3, 4)))[0].startswith(
        "-p icmp -m icmp --icmp-type 3/4 "
    )
    assert text_of(replace(ping, protocol=58), version=6)[0].startswith(
        "-p icmpv6 -m icmp6 --icmpv6-type 8 "
    )
    assert text_of(replace(ping, protocol=1), version=6) == [text_of()[0]]
    negated = replace(ALLOW, protocol=1, not_icmp=(8, 0))
    assert "-m icmp ! --icmp-type 8/0" in text_of(negated)[0]


def test_a_log_prefix_names_the_policy_and_fits() -> None:
    verdicts = replace(VERDICTS, log_prefix='%t/%k/%p "x"')
    policy = ResolvedPolicy(NPOL, "blue", (ResolvedRule(Verb.LOG),), ())
    action = policy_chains(policy, 4, MARKS, verdicts)[0].rules[0].action
    assert action == Log("blue/NetworkPolicy/default/: ")
    assert len(action.prefix) <= 29


def test_annotations_become_comments() -> None:
    rule = replace(ALLOW, annotations=(("who", "me"), ("why", 'a"b')))
    assert render_rule(chain_of(rule).rules[0]).startswith(
        '-m comment --comment "GlobalNetworkPolicy gpol ingress" -m comment --comment "who=me" '
        '-m comment --comment "why=a_b" --jump MARK'
    )


@given(st.lists(st.tuples(st.integers(0, 65535), st.integers(0, 65535)).map(lambda p: tuple(
    sorted(p))), max_size=60))  # fmt: skip
def test_multiports_hold_all_and_fit(ranges: list[tuple[int, int]]) -> None:
    parts = multiports(ranges)
    assert [each for part in parts for each in part] == ranges
    for part in parts:
        assert 0 < sum(1 if a == b else 2 for a, b in part) <= MOST_PORTS


def test_sixteen_ports_become_a_block_and_stay_one_match_when_negated() -> None:
    many = tuple((port, port) for port in range(100, 116))
    positive = chain_of(replace(ALLOW, protocol=6, destination=EntityMatch(ports=many)))
    assert sum(isinstance(m, Ports) for rule in positive.rules for m in rule.match) == 2
    assert len(positive.rules) == 4
    negative = chain_of(replace(ALLOW, protocol=6, destination=EntityMatch(not_ports=many)))
    assert sum(isinstance(m, Ports) for m in negative.rules[0].match) == 2


def test_a_missing_profile_denies_everything() -> None:
    policy = ResolvedPolicy(NET1, "", (ALLOW,), (ALLOW,), missing=True)
    for chain in policy_chains(policy, 6, MARKS, VERDICTS):
        packet = Packet(ip_address("fd00::1"), ip_address("fd00::2"))
        assert Kernel({chain.name: chain}).walk(chain.name, packet)[0] == "DROP"


def test_denied_may_mean_rejected() -> None:
    policy = ResolvedPolicy(GPOL, "default", (DENY,), ())
    chain = policy_chains(policy, 4, MARKS, Verdicts(Accept(), Reject()))[0]
    assert Kernel({chain.name: chain}).walk(chain.name, Packet())[0] == "REJECT"


def test_a_profile_that_passes_is_not_misled_by_a_tiers_pass() -> None:
    web = EntityMatch(ports=((81, 81),))
    chain = chain_of(
        ResolvedRule(Verb.PASS, protocol=6, destination=web), ALLOW, key=NET1
    )  # the pass rule does not match
    assert Kernel({chain.name: chain}).walk(chain.name, Packet(), MARKS.passed)[1] & MARKS.accept


# -- the third block, which upstream does not enforce ------------------------------------------

NETS = tuple(ip_network(f"10.0.{n}.0/24") for n in range(4))
BLOCKS = {
    "source ports": EntityMatch(ports=((10, 10),), named_ports=("n:src",)),
    "destination ports": EntityMatch(ports=((80, 80),), named_ports=("n:dst",)),
    "source nets": EntityMatch(nets=NETS[:2]),
    "destination nets": EntityMatch(nets=NETS[2:]),
}


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_positive_block_is_enforced(count: int) -> None:
    """One of many ports and one of many networks, on both sides: all choices must hold."""
    for chosen in itertools.combinations(BLOCKS, count):
        source, destination = (
            merged([BLOCKS[name] for name in chosen if name.startswith(side)])
            for side in ("source", "destination")
        )
        rule = replace(ALLOW, protocol=6, source=source, destination=destination)
        chain = chain_of(rule)
        kernel = Kernel(
            {chain.name: chain}, {"cali40n:src": frozenset(), "cali40n:dst": frozenset()}
        )
        for holds in itertools.product([False, True], repeat=4):
            packet = Packet(
                ip_address("10.0.0.5" if holds[2] else "10.9.0.5"),
                ip_address("10.0.3.5" if holds[3] else "10.9.0.6"),
                ports=(10 if holds[0] else 11, 80 if holds[1] else 81),
            )
            expected = all(h for h, name in zip(holds, BLOCKS, strict=True) if name in chosen)
            for mark in (0, MARKS.scratch0, MARKS.scratch1, MARKS.scratch0 | MARKS.scratch1):
                _, after = kernel.walk(chain.name, packet, mark)
                assert bool(after & MARKS.accept) == expected, (chosen, holds)


def merged(matches: list[EntityMatch]) -> EntityMatch:
    whole = ANYONE
    for each in matches:
        whole = replace(
            whole,
            nets=whole.nets + each.nets,
            ports=whole.ports + each.ports,
            named_ports=whole.named_ports + each.named_ports,
        )
    return whole
