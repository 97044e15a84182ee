"""The oracle against tables written by hand: its own errors must not become the standard."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.policy_random import oracle as oracle_module
from tests.policy_random import oracle_selectors, oracle_services
from tests.policy_random.oracle import Flow, Oracle
from tests.policy_random.oracle_selectors import BadSelector, holds, parse

A, B, C = {"a": "x"}, {"a": "xyz", "b": "2"}, {"projectcalico.org/namespace": "n", "in": "in"}

# Selector -> which of A, B, C it selects.
SELECTORS = {
    "": "ABC",
    "  \t": "ABC",
    "all()": "ABC",
    "global()": "AB",
    "!all()": "",
    "has(a)": "AB",
    "!has( a )": "C",
    "a == 'x'": "A",
    'a=="x"': "A",
    "a != 'x'": "BC",
    "a in {'x', 'q'}": "A",
    "a in {}": "",
    "a not in {'x',}": "BC",
    "a notin {'x'}": "BC",
    "a not\tin {}": "ABC",
    "a contains 'y'": "B",
    "a contains ''": "AB",
    "a starts with 'xy'": "B",
    "a startswith 'x'": "AB",
    "a ends with 'z'": "B",
    "a endswith 'x'": "A",
    "in in {'in'}": "C",
    'in contains "n"': "C",
    "has(b) || has(a) && a == 'q'": "B",
    "(has(b) || has(a)) && a != 'xyz'": "A",
    "!has(b) && has(a)": "A",
    "!(has(b) && has(a))": "AC",
    "!!has(b)": "B",
    "! ! !has(b)": "AC",
    "projectcalico.org/namespace == 'n'": "C",
}


@pytest.mark.parametrize("text", SELECTORS)
def test_selectors(text: str) -> None:
    found = "".join(
        name
        for name, labels in (("A", A), ("B", B), ("C", C))
        if holds(parse(text), labels, all_means=None)
    )
    assert found == SELECTORS[text]


@pytest.mark.parametrize(
    "text", ["a", "a =", "a = 'x'", "a == x", "a & b", "has (a)", "(has(a)", "a in 'x'", "all ()"]
)
def test_what_is_no_selector(text: str) -> None:
    with pytest.raises(BadSelector):
        parse(text)


def test_the_oracle_imports_nothing_of_the_product() -> None:
    parts = {oracle_selectors.__name__, oracle_services.__name__}
    allowed = {"yaml", *parts, "__future__"}
    standard = {"collections.abc", "dataclasses", "functools", "ipaddress", "typing"}
    for module in (oracle_module, oracle_selectors, oracle_services):
        assert module.__file__ is not None
        for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
            names = [n.name for n in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [str(node.module)]
            assert set(names) <= allowed | standard


# Three pods: web (labels, service account, named ports) and db in `n`, other in `m`.
PODS = """\
kind: Tier
metadata: {name: default}
spec: {order: 1000000, defaultAction: Deny}
---
kind: Profile
metadata: {name: kns.n}
spec:
  ingress: [{action: Allow}]
  egress: [{action: Allow}]
  labelsToApply: {pcns.env: prod, pcns.projectcalico.org/name: n}
---
kind: Profile
metadata: {name: kns.m}
spec: {ingress: [{action: Allow}], egress: [{action: Allow}], labelsToApply: {pcns.env: test}}
---
kind: Profile
metadata: {name: ksa.n.robot}
spec: {labelsToApply: {pcsa.power: high}}
---
kind: WorkloadEndpoint
metadata: {name: w1, namespace: n, labels: {app: web, projectcalico.org/serviceaccount: robot}}
spec:
  {orchestrator: k8s, node: node1, pod: web, ipNetworks: [10.0.0.1/32, "fd00::1/128"],
   profiles: [kns.n, ksa.n.robot], ports: [{name: http, protocol: TCP, port: 80}]}
---
kind: WorkloadEndpoint
metadata: {name: w2, namespace: n, labels: {app: db}}
spec:
  {orchestrator: k8s, node: node2, pod: db, ipNetworks: [10.0.1.2/32, "fd00::2/128"],
   profiles: [kns.n], ports: [{name: http, protocol: TCP, port: 8080}]}
---
kind: WorkloadEndpoint
metadata: {name: w3, namespace: m, labels: {app: web}}
spec:
  {orchestrator: k8s, node: node2, pod: other, ipNetworks: [10.0.1.3/32, "fd00::3/128"],
   profiles: [kns.m]}
---
kind: GlobalNetworkSet
metadata: {name: g, labels: {app: set}}
spec: {nets: [10.0.1.0/24]}
---
kind: NetworkSet
metadata: {name: s, namespace: m, labels: {app: set}}
spec: {nets: [10.0.0.1]}
---
"""
WEB, DB, OTHER = "n/web", "n/db", "m/other"


def tcp(source: str, destination: str, port: int = 80, version: int = 4) -> Flow:
    """A TCP connection."""
    return Flow(source, destination, version, 6, 33000, port)


def globally(body: str, **spec: object) -> str:
    """A GlobalNetworkPolicy whose ingress is `body`, over db."""
    more = "".join(f", {key}: {value}" for key, value in spec.items())
    return (
        "kind: GlobalNetworkPolicy\nmetadata: {name: p}\n"
        f"spec: {{selector: app == 'db', types: [Ingress], ingress: [{body}]{more}}}\n"
    )


def locally(body: str) -> str:
    """The same as NetworkPolicy of namespace n."""
    return globally(body).replace("Global", "").replace("{name: p}", "{name: p, namespace: n}")


# Ingress rules of db -> who of (web, other) reaches its port 80, and whether web reaches 8080.
RULES = {
    "": (False, False, False),
    "{action: Allow}": (True, True, True),
    "{action: Log}": (False, False, False),
    "{action: Pass}": (True, True, True),
    "{action: Deny}, {action: Allow}": (False, False, False),
    "{action: Log}, {action: Allow}": (True, True, True),
    "{action: Allow, protocol: TCP, destination: {ports: [80]}}": (True, True, False),
    '{action: Allow, protocol: 6, destination: {ports: ["79:81"]}}': (True, True, False),
    '{action: Allow, protocol: TCP, destination: {ports: ["81:8079"]}}': (False, False, False),
    "{action: Allow, protocol: TCP, destination: {ports: [http]}}": (False, False, True),
    "{action: Allow, protocol: UDP, destination: {ports: [http]}}": (False, False, False),
    "{action: Allow, destination: {ports: [http]}}": (False, False, True),
    "{action: Allow, destination: {notPorts: [http]}}": (True, True, False),
    "{action: Allow, protocol: TCP, destination: {notPorts: [80]}}": (False, False, True),
    "{action: Allow, protocol: TCP, source: {ports: [33000]}}": (True, True, True),
    "{action: Allow, protocol: UDP}": (False, False, False),
    "{action: Allow, notProtocol: UDP}": (True, True, True),
    "{action: Allow, notProtocol: 6}": (False, False, False),
    "{action: Allow, ipVersion: 6}": (False, False, False),
    "{action: Allow, source: {nets: [10.0.0.0/24]}}": (True, False, True),
    "{action: Allow, source: {nets: [10.0.0.0/8], notNets: [10.0.0.0/24]}}": (False, True, False),
    '{action: Allow, source: {nets: ["fd00::/8"]}}': (False, False, False),
    '{action: Allow, source: {notNets: ["fd00::/8"]}}': (False, False, False),
    "{action: Allow, source: {selector: app == 'web'}}": (True, True, True),
    "{action: Allow, source: {selector: app == 'set'}}": (True, True, True),
    "{action: Allow, source: {selector: app == 'set', namespaceSelector: global()}}": (
        False,
        True,
        False,
    ),
    "{action: Allow, source: {namespaceSelector: all()}}": (True, True, True),
    "{action: Allow, source: {namespaceSelector: env == 'test'}}": (True, True, True),
    "{action: Allow, source: {namespaceSelector: env == 'prod'}}": (True, False, True),
    "{action: Allow, source: {notSelector: app == 'set'}}": (False, False, False),
    "{action: Allow, source: {selector: app == 'web', notSelector: app == 'set'}}": (
        True,
        True,
        True,
    ),
    "{action: Allow, source: {serviceAccounts: {names: [robot]}}}": (True, False, True),
    "{action: Allow, source: {serviceAccounts: {selector: power == 'high'}}}": (True, False, True),
    "{action: Allow, source: {serviceAccounts: {names: [x], selector: has(power)}}}": (
        False,
        False,
        False,
    ),
    "{action: Pass, source: {nets: [10.0.0.1/32]}}, {action: Deny}": (True, False, True),
}


@pytest.mark.parametrize("rules", RULES)
def test_rules(rules: str) -> None:
    oracle = Oracle.from_yaml(PODS + globally(rules))
    found = (
        oracle.allows(tcp(WEB, DB)),
        oracle.allows(tcp(OTHER, DB)),
        oracle.allows(tcp(WEB, DB, 8080)),
    )
    assert found == RULES[rules]
    # Nobody else is concerned.
    assert oracle.allows(tcp(DB, WEB))
    assert oracle.allows(tcp(DB, OTHER))


def test_rules_of_a_namespaced_policy_mean_its_own_namespace() -> None:
    for entity, web, other in (
        ("selector: app == 'web'", True, False),
        ("selector: app == 'set'", False, False),
        ("selector: app == 'web', namespaceSelector: all()", True, True),
        ("notSelector: app == 'db'", True, False),
        ("serviceAccounts: {selector: all()}", True, False),
        ("nets: [10.0.0.0/8]", True, True),
    ):
        oracle = Oracle.from_yaml(PODS + locally(f"{{action: Allow, source: {{{entity}}}}}"))
        assert (oracle.allows(tcp(WEB, DB)), oracle.allows(tcp(OTHER, DB))) == (web, other), entity


def test_icmp() -> None:
    def ping(kind: int, code: int) -> Flow:
        return Flow(WEB, DB, 4, 1, icmp_type=kind, icmp_code=code)

    for rule, echo, coded, stamp in (
        ("{action: Allow, protocol: ICMP}", True, True, True),
        ("{action: Allow, protocol: ICMPv6}", False, False, False),
        ("{action: Allow, protocol: ICMP, icmp: {type: 8}}", True, True, False),
        ("{action: Allow, protocol: ICMP, icmp: {type: 8, code: 0}}", True, False, False),
        ("{action: Allow, protocol: 1, notICMP: {type: 8, code: 3}}", True, False, True),
        ("{action: Allow, protocol: ICMP, notICMP: {type: 8}}", False, False, True),
    ):
        oracle = Oracle.from_yaml(PODS + globally(rule))
        assert [
            oracle.allows(ping(8, 0)),
            oracle.allows(ping(8, 3)),
            oracle.allows(ping(13, 0)),
        ] == [
            echo,
            coded,
            stamp,
        ], rule


def policy(name: str, body: str, **spec: object) -> str:
    """A further policy over db."""
    return globally(body, **spec).replace("name: p", f"name: {name}") + "---\n"


def test_order_and_ties() -> None:
    allow, deny = "{action: Allow}", "{action: Deny}"
    for policies, expected in (
        (policy("a", allow, order=2) + policy("b", deny, order=1.5), False),
        (policy("a", allow) + policy("b", deny, order=1000), False),
        (policy("a", allow) + policy("b", deny), True),
        (policy("a", allow, order=1) + policy("a-b", deny, order=1), False),
        (policy("a", allow, order=1) + policy("ab", deny, order=1), True),
    ):
        assert Oracle.from_yaml(PODS + policies).allows(tcp(WEB, DB)) is expected, policies


def test_tiers() -> None:
    def tier(name: str, **spec: object) -> str:
        text = ", ".join(f"{key}: {value}" for key, value in spec.items())
        return f"kind: Tier\nmetadata: {{name: {name}}}\nspec: {{{text}}}\n---\n"

    allow, deny = "{action: Allow}", "{action: Deny}"
    pass_, log = "{action: Pass}", "{action: Log}"
    for documents, expected in (
        (tier("t", order=1) + policy("a", log, tier="t") + policy("b", allow), False),
        (
            tier("t", order=1, defaultAction="Pass")
            + policy("a", log, tier="t")
            + policy("b", allow),
            True,
        ),
        (tier("t", order=1) + policy("a", pass_, tier="t") + policy("b", deny), False),
        (tier("t", order=1) + policy("a", pass_ + ", " + deny, tier="t"), True),
        (tier("t", order=1) + policy("a", allow, tier="t") + policy("b", deny), True),
        (tier("t") + policy("a", allow, tier="t") + policy("b", deny), False),
        (
            tier("t", order=5)
            + tier("s", order=5)
            + policy("a", allow, tier="t")
            + policy("b", deny, tier="s"),
            False,
        ),
        # A tier whose policies do not select the endpoint is not there.
        (tier("t", order=1) + policy("a", deny, tier="t").replace("'db'", "'x'"), True),
        (policy("a", deny, tier="undefined") + policy("b", allow), True),
    ):
        assert Oracle.from_yaml(PODS + documents).allows(tcp(WEB, DB)) is expected, documents


def test_types() -> None:
    def directions(spec: str) -> tuple[bool, bool]:
        head = "kind: GlobalNetworkPolicy\nmetadata: {name: p}\n"
        text = f"{head}spec: {{selector: app == 'db'{spec}}}"
        oracle = Oracle.from_yaml(PODS + text)
        return oracle.allows(tcp(WEB, DB)), oracle.allows(tcp(DB, WEB))

    deny = "[{action: Deny}]"
    assert directions("") == (False, True)
    assert directions(f", ingress: {deny}") == (False, True)
    assert directions(f", egress: {deny}") == (True, False)
    assert directions(f", ingress: {deny}, egress: {deny}") == (False, False)
    assert directions(f", types: [Ingress], egress: {deny}") == (False, True)
    assert directions(", types: [Egress]") == (True, False)
    assert directions(", types: [Egress], doNotTrack: true, applyOnForward: true") == (True, True)


def test_whom_a_policy_selects() -> None:
    def selected(kind: str, spec: str) -> str:
        where = ", namespace: n" if kind == "NetworkPolicy" else ""
        text = f"kind: {kind}\nmetadata: {{name: p{where}}}\nspec: {{types: [Ingress]{spec}}}"
        oracle = Oracle.from_yaml(PODS + text)
        asked = {WEB: tcp(DB, WEB), DB: tcp(WEB, DB), OTHER: tcp(WEB, OTHER)}
        return " ".join(title for title, flow in asked.items() if not oracle.allows(flow))

    everyone = "n/web n/db m/other"
    assert selected("NetworkPolicy", "") == "n/web n/db"
    assert selected("NetworkPolicy", ", selector: all()") == "n/web n/db"
    assert selected("NetworkPolicy", ", serviceAccountSelector: all()") == "n/web n/db"
    assert selected("NetworkPolicy", ", serviceAccountSelector: has(power)") == "n/web"
    assert selected("GlobalNetworkPolicy", "") == everyone
    assert selected("GlobalNetworkPolicy", ", namespaceSelector: env == 'test'") == "m/other"
    assert selected("GlobalNetworkPolicy", ", namespaceSelector: all()") == everyone
    assert selected("GlobalNetworkPolicy", ", serviceAccountSelector: all()") == "n/web"
    # An all() of the selector that is joined with the other one means the other one's subject.
    lacking = ", serviceAccountSelector: power != 'x'"
    assert selected("GlobalNetworkPolicy", lacking) == everyone
    assert selected("GlobalNetworkPolicy", f", selector: all(){lacking}") == "n/web"
    both = f", selector: all(), namespaceSelector: all(){lacking}"
    assert selected("GlobalNetworkPolicy", both) == everyone


def test_profiles() -> None:
    def reached(profiles: str) -> bool:
        text = PODS.replace("profiles: [kns.n], ports", f"profiles: {profiles}, ports")
        rules = (
            "kind: Profile\nmetadata: {name: shut}\nspec: {ingress: [{action: Deny}]}\n---\n"
            "kind: Profile\nmetadata: {name: next}\n"
            "spec: {ingress: [{action: Pass}, {action: Deny}]}\n---\n"
            "kind: Profile\nmetadata: {name: kns.n2}\nspec: {ingress: [{action: Allow}]}\n"
        )
        return Oracle.from_yaml(text + rules).allows(tcp(WEB, DB))

    assert reached("[kns.n2]")
    assert not reached("[]")
    assert not reached("[shut, kns.n2]")
    assert not reached("[missing, kns.n2]")
    assert reached("[kns.n2, missing]")
    assert reached("[next, kns.n2]")
    assert reached("[ksa.n.robot, kns.n2]")


def test_the_first_profile_wins_a_label_and_the_endpoint_over_both() -> None:
    text = PODS.replace("[kns.n, ksa.n.robot]", "[one, two]") + (
        "kind: Profile\nmetadata: {name: one}\nspec: {labelsToApply: {l: '1', app: no}}\n---\n"
        "kind: Profile\nmetadata: {name: two}\nspec: {labelsToApply: {l: '2', k: '2'}}\n"
    )
    labels = Oracle.from_yaml(text).endpoints[WEB].labels
    assert (labels["l"], labels["k"], labels["app"]) == ("1", "2", "web")


def test_a_named_port_is_filtered_by_the_selector_of_its_side() -> None:
    def reached(entity: str, port: int) -> bool:
        rule = f"{{action: Allow, protocol: TCP, destination: {{{entity}}}}}"
        return Oracle.from_yaml(PODS + globally(rule)).allows(tcp(WEB, DB, port))

    assert reached("selector: app == 'db', ports: [http]", 8080)
    # The network set that holds db's address is selected, but it declares no port.
    assert not reached("selector: app == 'set', ports: [http]", 8080)
    assert reached("selector: app == 'set', ports: [http, 8080]", 8080)
    assert reached("selector: app == 'set', notPorts: [http]", 8080)
    assert not reached("selector: app == 'db', notPorts: [http]", 8080)


def test_both_ends_must_agree_and_families_are_apart() -> None:
    egress = (
        "kind: NetworkPolicy\nmetadata: {name: p, namespace: n}\n"
        "spec: {selector: app == 'web', types: [Egress], "
        'egress: [{action: Allow, destination: {nets: ["fd00::2/128"]}}]}\n'
    )
    oracle = Oracle.from_yaml(PODS + egress)
    assert not oracle.allows(tcp(WEB, DB))
    assert oracle.allows(tcp(WEB, DB, version=6))
    assert not oracle.allows(tcp(WEB, OTHER, version=6))
    assert oracle.egress(tcp(WEB, DB)).by == "end of tier default"
    assert oracle.ingress(tcp(WEB, DB)).by == "profile kns.n"
