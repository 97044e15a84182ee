"""No policy becomes rules that a kernel refuses: one such rule holds up a whole table.

The longest rules that valid objects make, and names that no valid object has, go through
iptables-restore, or as netlink messages into nftables.
"""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from felix.calc.policy_model import EndpointPolicy, EntityMatch, ResolvedPolicy, ResolvedRule, Verb
from felix.dataplane.rules.nftables import NftTables
from felix.rules import names
from felix.rules.endpoints import endpoint_chains, endpoint_rules
from felix.rules.iptables import render_rules
from felix.rules.model import Chain
from felix.rules.policy import policy_chains
from libcalico.model.keys import ResourceKey
from linux.iptables.hashes import HashScheme
from tests.felix.rules.test_policy_rules import DENY, GPOL, MARKS, VERDICTS, chain_of
from tests.felix.walk import Kernel, Packet
from tests.support.netns import network_namespace

ODD = ["a b", 'x"y', "it's", "line\nbreak", "ümlaut", "-j ACCEPT", "$(x)", "a;b", "%s"]
EVEN = tuple((port, port) for port in range(2, 2002, 2))
RANGES = tuple((port, port + 1) for port in range(3, 3003, 3))


BACKENDS = ("nft", "legacy", "nftables")


def taken(kind: str, *chains: Chain) -> None:
    """Give chains to a back end in a namespace of their own; it takes them all."""
    if kind == "nftables":
        committed(*chains)
    else:
        restored(kind, *chains)


def committed(*chains: Chain) -> None:
    """Hand chains to the kernel as felix does natively, and read them back."""

    async def commit() -> tuple[dict[str, str], bool, int]:
        rules = NftTables({4})
        try:
            rules.want(4, {})
            for chain in chains:
                rules.places[4, "filter"].want(chain)
            return await rules.commit(), await rules.read_back(), rules.drifted
        finally:
            rules.close()

    with network_namespace("extreme") as space, space.entered():
        assert asyncio.run(commit()) == ({}, False, 0)
        listed = space.run("nft", "list", "table", "ip", "calico")
    assert all(f"chain filter-{chain.name} " in listed for chain in chains)


def restored(kind: str, *chains: Chain) -> None:
    """Hand chains to iptables-restore, hashes and all, in a namespace of their own."""
    scheme = HashScheme("cali:", ("cali-",))
    lines = ["*filter", *(f":{chain.name} - [0:0]" for chain in chains)]
    for chain in chains:
        rules = render_rules(chain.rules)
        for each, rule in zip(scheme.hashes(chain.name, rules), rules, strict=True):
            lines.append(f"-A {chain.name} {scheme.comment(each)} {rule}")
    text = "\n".join([*lines, "COMMIT", ""])
    with network_namespace("extreme") as space:
        done = subprocess.run(
            space.command(f"iptables-{kind}-restore", "--noflush"),
            input=text.encode(),
            capture_output=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", BACKENDS)
@pytest.mark.parametrize("ports", [EVEN, RANGES], ids=["ports", "ranges"])
@pytest.mark.parametrize("verb", [Verb.ALLOW, Verb.DENY])
def test_any_number_of_excluded_ports(
    kind: str, ports: tuple[tuple[int, int], ...], verb: Verb
) -> None:
    side = EntityMatch(not_ports=ports)
    notes = tuple((f"key{number}", "v" * 300) for number in range(100))
    rule = ResolvedRule(verb, protocol=6, source=side, destination=side, annotations=notes)
    chains = policy_chains(ResolvedPolicy(GPOL, "default", (rule,), (rule,)), 4, MARKS, VERDICTS)
    taken(kind, *chains)


@pytest.mark.parametrize("count", [15 * 16, 15 * 16 + 1, 500])
@pytest.mark.parametrize("port", [2, 3, 2 * 16 * 15, 2 * 16 * 15 + 2, 4001])
def test_excluded_ports_mean_the_same_however_many(count: int, port: int) -> None:
    excluded = EVEN[:count]
    rule = ResolvedRule(Verb.ALLOW, protocol=6, destination=EntityMatch(not_ports=excluded))
    chain = chain_of(rule, DENY)
    verdict, _ = Kernel({chain.name: chain}, {}).walk(chain.name, Packet(ports=(1000, port)), 0)
    assert verdict == ("DROP" if (port, port) in excluded else "RETURN")


@pytest.mark.parametrize("kind", BACKENDS)
def test_names_that_no_valid_object_has_do_not_break_the_table(kind: str) -> None:
    found: list[Chain] = []
    for number, odd in enumerate(ODD):
        for key in (ResourceKey("Profile", odd), ResourceKey("NetworkPolicy", odd, odd)):
            rule = ResolvedRule(Verb.DENY, annotations=((odd, odd),))
            policy = ResolvedPolicy(key, odd, (rule,), (rule,))
            found += policy_chains(policy, 4, MARKS, VERDICTS)
        rules = endpoint_rules(f"cali{number}", EndpointPolicy((), (odd,)))
        found += endpoint_chains(rules, MARKS, VERDICTS)
    assert len({chain.name for chain in found}) == len(found)
    taken(kind, *found)


def test_plain_names_stay_as_calico_has_them() -> None:
    key = ResourceKey("NetworkPolicy", "web.v1_x-2", "ns")
    assert names.policy_chain("cali-pi-", key) == "cali-pi-np/ns/web.v1_x-2"
