"""The rules that felix writes of a few fixed things, as text with their hashes.

`tests/golden/rules.txt` holds them: names of chains and sets, matches, marks, order and hashes
cannot change unseen. A rule that changes is written again on every node at the next start.

    python -m tests.support.rule_texts --write    takes the rules of today into the golden file
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from felix.calc.policy import PolicyEngine
from felix.dataplane.rules.iptables import SCHEME
from felix.rules import iptables, nftables
from felix.rules.endpoints import endpoint_chains, endpoint_rules
from felix.rules.inputs import Facts, RuleSettings
from felix.rules.model import Chain, Rule, TableModel
from felix.rules.policy import policy_chains
from felix.rules.static import tables
from felix.rules.tunnels import TunnelRules
from libcalico.model import ResourceKey
from linux.iptables.render import Renderer
from linux.nftables import pack
from linux.nftables.expressions import Family
from tests.felix.policy_objects import ME, allow, deny, namespace, pod, policy

GOLDEN = Path(__file__).resolve().parents[1] / "golden/rules.txt"
FAMILIES: tuple[Family, ...] = (4, 6)
SETTINGS = RuleSettings()
FACTS = {
    "without host endpoints": Facts(nat_outgoing=True, hosts=False),
    "with host endpoints": Facts(nat_outgoing=True, hosts=True),
    "with tunnels and services": Facts(
        nat_outgoing=True,
        tunnels=TunnelRules(ipip=True, vxlan_ports=(4789,), sources=("tunl0", "vxlan.calico")),
    ),
}


def _objects() -> Iterator[tuple[ResourceKey, object]]:
    yield namespace("default", team="a")
    yield pod("web", "10.65.0.1", {"app": "web"}, profiles=["kns.default"])
    peers = {"selector": "app == 'db'", "notNets": ["10.66.0.0/16"]}
    yield policy(
        "first",
        order=1,
        selector="app == 'web'",
        types=["Ingress", "Egress"],
        ingress=[
            allow(protocol="TCP", source=peers, destination={"ports": [80, "443:445", 8080]}),
            deny(protocol="ICMP", icmp={"type": 8, "code": 0}),
            deny(source={"nets": ["192.0.2.0/24", "198.51.100.0/24"]}),
        ],
        egress=[allow(protocol="UDP", destination={"notPorts": [25]}), allow(ipVersion=6)],
    )
    yield policy("second", order=2, selector="all()", types=["Ingress"], ingress=[])


def _models() -> Iterator[tuple[str, Family, TableModel]]:
    for title, facts in FACTS.items():
        for family in FAMILIES:
            for model in tables(family, SETTINGS, facts).values():
                yield title, family, model


def _of_a_pod(family: Family) -> TableModel:
    engine = PolicyEngine(ME)
    for key, value in _objects():
        engine.update(key, value)
    engine.start()
    changes = engine.flush()
    chains: list[Chain] = []
    for resolved in (*changes.policies.values(), *changes.profiles.values()):
        assert resolved is not None
        chains += policy_chains(resolved, family, SETTINGS.marks, SETTINGS.verdicts)
    for endpoint in changes.endpoints.values():
        assert endpoint is not None
        made = endpoint_rules("cali1", endpoint)
        chains += endpoint_chains(made, SETTINGS.marks, SETTINGS.verdicts)
    return TableModel("filter", tuple(sorted(chains, key=lambda chain: chain.name)))


def lines() -> Iterator[str]:
    """Every line of the golden file."""
    models = [*_models(), *(("a pod", family, _of_a_pod(family)) for family in FAMILIES)]
    for title, family, model in models:
        places: list[tuple[str, Iterable[Rule]]] = [(c.name, c.rules) for c in model.chains]
        places += [(f"{name}, first", rules) for name, rules in model.inserts.items()]
        places += [(f"{name}, last", rules) for name, rules in model.appends.items()]
        for name, rules in places:
            yield f"# {title}, IPv{family} {model.name} {name}"
            yield from _texts(name, tuple(rules), family, model.name)


def _texts(name: str, rules: tuple[Rule, ...], family: Family, layer: str) -> Iterator[str]:
    renderer = Renderer(SCHEME)
    chain = name.partition(",")[0]
    texts = iptables.render_rules(rules)
    kernel = chain != name
    made = renderer.kernel({chain: texts}, {})[chain][0] if kernel else renderer.chain(chain, texts)
    yield from made.rules
    for digest in pack(nftables.render_rules(rules, family, layer)).hashes:
        yield f"nftables {digest}"


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    GOLDEN.write_text("\n".join(lines()) + "\n")
