"""The rules of a node, against what Calico's Felix programmed (names, text, order, hashes).

A rule hash covers the chain's name, the rule's text and every rule before it, so equal
hashes mean: the same rules in the same order. The hashes below are data recorded from an
`iptables-save` of a real Calico node with one pod, one policy and one profile.
"""

from __future__ import annotations

import base64
import hashlib
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felix.calc.policy_model import EndpointPolicy, TierView
from felix.rules import names
from felix.rules.dispatch import Bins
from felix.rules.endpoints import EndpointRules, Verdicts, endpoint_chains, endpoint_rules
from felix.rules.inputs import Facts, RuleSettings
from felix.rules.iptables import render_rule
from felix.rules.model import (
    Accept,
    Chain,
    Condition,
    Drop,
    Goto,
    Icmp,
    InInterface,
    InSet,
    Jump,
    Mark,
    Marks,
    Net,
    Ports,
    Protocol,
    Rule,
    SetMark,
    Side,
    TableModel,
)
from felix.rules.nat import NatRules
from felix.rules.static import tables
from libcalico.model.keys import ResourceKey

POD = "cali0761ccbeace"
MARKS = Marks.allocate(0xFFFF0000)
VERDICTS = Verdicts(Accept(), Drop())
GPOL = ResourceKey("GlobalNetworkPolicy", "gpol")
NPOL = ResourceKey("NetworkPolicy", "npol", "default")

RECORDED = {
    "raw": {
        "PREROUTING": "6gwbT8clXdHdC1b1",
        "OUTPUT": "tVnHkvAo15HuiPy0",
        "cali-OUTPUT": "clI8WObfCl4yhr60 ZbkN6P8OdRcBRPpU tTi_3jFgvxUFsObH",
        "cali-PREROUTING": "DQ6LK2guiBRMyrLK o0awFTLnSamXVVNW aJ7XamFJS43rOYyJ "
        "hOMHbY_OXb_BF9pw N7S4OAqlgBJWcynn 8A061i5zP9KV-opa",
        "cali-rpf-skip": "",
    },
    "mangle": {
        "PREROUTING": "6gwbT8clXdHdC1b1",
        "POSTROUTING": "O3lYWMrLQYEMJtB5",
        "cali-PREROUTING": "6BJqBjBC7crtA-7- KX7AGNd6rMcDUai6 wNH7KsA3ILKJBsY9 Cg96MgVuoPm7UMRo",
    },
    "nat": {
        "PREROUTING": "6gwbT8clXdHdC1b1",
        "OUTPUT": "tVnHkvAo15HuiPy0",
        "POSTROUTING*appends*": "0i8pjzKKPyA34aQD",
        "cali-OUTPUT": "GBTAv2p5CwevEyJm",
        "cali-POSTROUTING": "Z-c7XtVd2Bq7s_hA nYKhEzDlr11Jccal",
        "cali-PREROUTING": "r6XmIziWUJsdOK6Z",
        "cali-fip-dnat": "",
        "cali-fip-snat": "",
        "cali-nat-outgoing": "",
    },
    "filter": {
        "INPUT": "Cz_u1IQiXIMmKD4c",
        "FORWARD": "wUHhoiAYhphO9Mso",
        "FORWARD*appends*": "S93hcgKJrXEqnTfs mp77cMpurHhyjLrM",
        "OUTPUT": "tVnHkvAo15HuiPy0",
        "cali-FORWARD": "W_vvds1Nw3n9QE2f ZfgmjuiLaA8Pg0kp tAzwBLPaV-j53OOZ 4Z0Pf0byo05NFe-P "
        "hQ7Oc16wmUtLuneJ rnKNH2WxGcRQcIlD",
        "cali-INPUT": "FewJpBykm9iJ-YNH hder3ARWznqqv8Va eyx2leKMZ98ckPa- 3x0rc-VDNNJkVu93 "
        "pARw-KZUlQru4OX0",
        "cali-OUTPUT": "Mq1_rAdXXH3YkrzW 69FkRTJDvD5Vu6Vl _qC1vc3_sSxJWgRW utu2eOH2IZRmlfMX "
        "IL6b-f6R0sfjMo-y",
        "cali-wl-to-host": "Ee9Sbo10IpVujdIY nSZbcOoG1xPONxb8",
        f"cali-fw-{POD}": "X_O-OdxRhZv7K6-i aOYoxAjUhseOIMlP 4n2k8iPjXiSp9uCb bl16z1xMzQrfydwB "
        "pLzbmLwZK5pl3WkM Wvx7ba1MPJraoYu6 yd2-Bpz5imxZlIje HVB8n1VGeZgaJzyV RhJSb--fi_-OyKZ2 "
        "kTDEJB0U3kh9CCrG jFjOQz7yt6SJsMN3 58frL9VJX6FBiUac",
        f"cali-tw-{POD}": "yuDlULTsWjqYZmAI bXyt47xcB0BdoWlk pqiD3jz5cE-RloI6 xB8Oo2_hXN6MFh2P "
        "nyYusvd__QDVt8Zp -A4JRUHMa-FfBm1j J1CX1qQqhZdJJBDt NYECg111z0qOIy8J acy6Udy8psA1qte7 "
        "DX6C52Fx7AmLqyCa p1Sngii8GjG3yWe7 QFm6Vq4Nd5JlWNWH",
    },
}


def hashes(chain: str, rules: tuple[Rule, ...]) -> str:
    """The published hashes of a chain (docs/reference/dataplane.md#chain-names-and-hashes), written
    independently."""
    digest, out = hashlib.sha224(chain.encode()).digest(), []
    for rule in rules:
        text = f"-A {chain} HASH {render_rule(rule)}"
        digest = hashlib.sha224(digest + text.encode()).digest()
        out.append(base64.urlsafe_b64encode(digest).decode()[:16])
    return " ".join(out)


def all_hashes(table: TableModel) -> dict[str, str]:
    found = {chain.name: hashes(chain.name, chain.rules) for chain in table.chains}
    found |= {name: hashes(name, rules) for name, rules in table.inserts.items()}
    found |= {f"{n}*appends*": hashes(f"{n}*appends*", r) for n, r in table.appends.items()}
    return found


@pytest.mark.parametrize("table", RECORDED)
def test_rules_hash_as_calicos_do(table: str) -> None:
    recorded_node = endpoint_rules(
        POD,
        EndpointPolicy(
            (TierView("default", ingress=(GPOL, NPOL), egress=(GPOL,)),),
            profiles=("net1",),
        ),
    )
    settings = RuleSettings(endpoint_to_host=Accept())
    found = all_hashes(tables(4, settings, Facts())[table])
    for chain in endpoint_chains(recorded_node, MARKS, VERDICTS):
        found[chain.name] = hashes(chain.name, chain.rules)
    if table == "raw":
        # One rule of ours stands behind Calico's: nothing from a workload to the node's loopback.
        found["cali-PREROUTING"] = found["cali-PREROUTING"].rpartition(" ")[0]
    assert {chain: found.get(chain) for chain in RECORDED[table]} == RECORDED[table]


def test_nat_outgoing_leaves_pod_to_pod_alone() -> None:
    nat = {c.name: c for c in tables(4, RuleSettings(), Facts(nat_outgoing=True))["nat"].chains}
    assert [render_rule(rule) for rule in nat["cali-nat-outgoing"].rules] == [
        "-m set --match-set cali40masq-ipam-pools src "
        "-m set ! --match-set cali40network-ip-pools dst --jump MASQUERADE --random-fully"
    ]


def test_nat_outgoing_with_every_option() -> None:
    nat = NatRules((1024, 2047), address_v6="2001:db8::1", exclude_hosts=True, out_interface="eth+")
    built = tables(6, RuleSettings(nat=nat), Facts(nat_outgoing=True))["nat"]
    rules = next(chain.rules for chain in built.chains if chain.name == "cali-nat-outgoing")
    leaves = (
        "-m set --match-set cali60masq-ipam-pools src "
        "-m set ! --match-set cali60network-ip-pools dst "
        "-m set ! --match-set cali60all-hosts-net dst --out-interface eth+"
    )
    assert [render_rule(rule) for rule in rules] == [
        f"{leaves} -p tcp --jump SNAT --to-source 2001:db8::1:1024-2047 --random-fully",
        f"{leaves} -p tcp --jump RETURN",
        f"{leaves} -p 17 --jump SNAT --to-source 2001:db8::1:1024-2047 --random-fully",
        f"{leaves} -p 17 --jump RETURN",
        f"{leaves} --jump SNAT --to-source 2001:db8::1 --random-fully",
    ]


def test_append_mode_keeps_the_end_of_forward_last() -> None:
    table = tables(4, RuleSettings(append=True), Facts())["filter"]
    assert table.inserts == {}
    assert [render_rule(rule) for rule in table.appends["FORWARD"]] == [
        "--jump cali-FORWARD",
        '-m comment --comment "Policy explicitly accepted packet." '
        "-m mark --mark 0x10000/0x10000 --jump ACCEPT",
        "--jump MARK --set-mark 0x10000/0x10000",
    ]


def test_an_endpoint_that_is_off_drops_everything() -> None:
    for chain in endpoint_chains(EndpointRules(POD, admin_up=False), MARKS, VERDICTS):
        assert [rule.action for rule in chain.rules] == [Drop()]
        assert chain.rules[0].match == ()


def test_endpoint_chains_decide_every_packet() -> None:
    for chain in endpoint_chains(EndpointRules(POD), MARKS, VERDICTS):
        assert chain.rules[-1] == Rule(Drop(), (), ("Drop if no profiles matched",))


PREFIXES = st.sampled_from([("cali",), ("cali", "xy"), ("cali", "ca", "x")])
INTERFACES = st.sets(
    st.text("0123456789abcdef.", min_size=0, max_size=11).map("cali".__add__)
    | st.text("xyz", min_size=1, max_size=4),
    max_size=40,
)


@given(
    PREFIXES,
    INTERFACES,
    INTERFACES,
    st.sets(st.integers(0, 39)),
    st.sampled_from([0, MARKS.accept]),
)
def test_dispatch_finds_the_endpoint_and_drops_strangers(
    prefixes: tuple[str, ...], came: set[str], probes: set[str], left: set[int], mark: int
) -> None:
    """In whichever order endpoints come and go, and whatever mark a packet comes with."""
    bins = Bins(prefixes, Drop())
    chains = {chain.name: chain for chain in bins.all()}
    known: set[str] = set()
    for number, name in enumerate(came):
        chains |= {chain.name: chain for chain in bins.add(name)}
        known.add(name)
        if number in left:
            changed, gone = bins.remove(name)
            chains |= {chain.name: chain for chain in changed}
            for each in gone:
                del chains[each]
            known.discard(name)
    assert all(chains[chain.name] == chain for chain in bins.all())
    fresh = Bins(prefixes, Drop())
    for name in known:
        fresh.add(name)
    assert {chain.name: set(chain.rules) for chain in fresh.all()} == {
        chain.name: set(chain.rules) for chain in bins.all()
    }, "what a restart makes"
    for name in known | probes:
        met: list[str] = []
        verdict = walk(chains, "cali-from-wl-dispatch", name, mark, met)
        assert met == ([f"cali-fw-{name}"] if name in known else [])
        assert verdict == ("RETURN" if name in known else "DROP")


def walk(chains: dict[str, Chain], start: str, interface: str, mark: int, met: list[str]) -> str:
    """What a packet meets as the kernel would walk; an endpoint's chain accepts it by mark."""
    stack: list[list[Rule]] = [list(chains[start].rules)] if start in chains else []
    while stack:
        if not stack[-1]:
            stack.pop()
            continue
        rule = stack[-1].pop(0)
        if not all(holds(condition, interface, mark) for condition in rule.match):
            continue
        match rule.action:
            case SetMark(value, mask):
                mark = mark & ~mask | value
            case Jump(chain) | Goto(chain):
                if isinstance(rule.action, Goto):
                    stack.pop()
                if chain in chains:
                    stack.append(list(chains[chain].rules))
                elif chain.startswith("cali-fw-"):
                    met.append(chain)
                    mark |= MARKS.accept
            case Drop():
                return "DROP"
            case other:
                raise AssertionError(other)
    return "RETURN"


def holds(condition: Condition, interface: str, mark: int) -> bool:
    match condition:
        case InInterface(name) if name.endswith("+"):
            return interface.startswith(name[:-1])
        case InInterface(name):
            return interface == name
        case Mark(value, mask, negated):
            return (mark & mask == value) is not negated
    raise AssertionError(condition)


@given(st.text(max_size=60), st.text(max_size=60))
def test_chain_names_fit_and_differ(one: str, other: str) -> None:
    first, second = names.limited("cali-pi-", one), names.limited("cali-pi-", other)
    assert len(first) <= names.MAX_CHAIN
    assert (first == second) == (one == other or {one, other} == {"", "_"})


def test_every_condition_has_its_words() -> None:
    v6 = ip_network("fd00::/8")
    rule = Rule(
        Drop(),
        (
            Protocol(6, negated=True),
            Net(Side.SOURCE, v6, negated=True),
            Net(Side.DESTINATION, v6),
            InSet(Side.SOURCE, "cali60s:x", ports=True),
            Ports(Side.SOURCE, ((80, 80), (8000, 8010)), negated=True),
            Icmp(6, 135),
            Icmp(4, 3, 1, negated=True),
        ),
        ('quo"ted; `text`',),
    )
    assert render_rule(rule) == (
        '-m comment --comment "quo_ted_ _text_" ! -p tcp ! --source fd00::/8 '
        "--destination fd00::/8 -m set --match-set cali60s:x src,src "
        "-m multiport ! --source-ports 80,8000:8010 -m icmp6 --icmpv6-type 135 "
        "-m icmp ! --icmp-type 3/1 --jump DROP"
    )


def test_too_few_mark_bits_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 5"):
        Marks.allocate(0xF0000)
