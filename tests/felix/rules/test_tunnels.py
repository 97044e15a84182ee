"""Rules of tunnels: text and order; none without a tunnel (TNR-2)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from felix.rules.inputs import Facts, RuleSettings
from felix.rules.iptables import render_rules
from felix.rules.model import Accept, Drop, Masquerade, TableModel
from felix.rules.static import tables
from felix.rules.tunnels import TunnelRules, incoming, outgoing, own_source, untracked

VXLAN = TunnelRules(vxlan_ports=(4789,), sources=("vxlan.calico",))
IPIP = TunnelRules(ipip=True, sources=("tunl0",))


def texts(model: TableModel, chain: str) -> tuple[str, ...]:
    return render_rules(next(c for c in model.chains if c.name == chain).rules)


def test_ipip_is_taken_from_nodes_and_from_nobody_else() -> None:
    assert render_rules(incoming(4, IPIP, Accept(), Drop())) == (
        '-m comment --comment "Allow IPIP packets from Calico hosts" -p 4'
        " -m set --match-set cali40all-hosts-net src -m addrtype --dst-type LOCAL --jump ACCEPT",
        '-m comment --comment "Drop IPIP packets from non-Calico hosts" -p 4 --jump DROP',
    )


def test_vxlan_is_taken_from_nodes_and_from_nobody_else() -> None:
    assert render_rules(incoming(6, VXLAN, Accept(), Drop())) == (
        '-m comment --comment "Allow IPv6 VXLAN packets from allowed hosts" -p 17'
        " -m multiport --destination-ports 4789 -m set --match-set cali60all-vxlan-net src"
        " -m addrtype --dst-type LOCAL --jump ACCEPT",
        '-m comment --comment "Drop IPv6 VXLAN packets from non-allowed hosts" -p 17'
        " -m multiport --destination-ports 4789 -m addrtype --dst-type LOCAL --jump DROP",
    )


def test_they_stand_before_what_workloads_send_to_their_node() -> None:
    found = tables(4, RuleSettings(), Facts(tunnels=TunnelRules(True, (4789,), ("vxlan.calico",))))
    input_rules = texts(found["filter"], "cali-INPUT")
    assert [" 4 " in text or "4789" in text for text in input_rules[:5]] == [True] * 4 + [False]
    raw = texts(found["raw"], "cali-PREROUTING")
    assert raw[1] == "-p 17 -m multiport --destination-ports 4789 --jump NOTRACK"
    assert raw[1] in texts(found["raw"], "cali-OUTPUT")
    leaving = texts(found["filter"], "cali-OUTPUT")
    allowed = [n for n, text in enumerate(leaving) if "other" in text]
    cleared = next(n for n, text in enumerate(leaving) if "MARK" in text)
    assert len(allowed) == 2
    assert max(allowed) < cleared


def test_the_host_sends_by_the_tunnels_address_and_never_from_its_port() -> None:
    leaving = texts(tables(4, RuleSettings(), Facts(tunnels=VXLAN))["nat"], "cali-POSTROUTING")
    match = (
        "--out-interface vxlan.calico -m addrtype ! --src-type LOCAL --limit-iface-out"
        " -m addrtype --src-type LOCAL --jump MASQUERADE"
    )
    assert leaving[-2:] == (
        f"-p 17 {match} --to-ports 4790-65535 --random-fully",
        f"{match} --random-fully",
    )


@given(st.lists(st.integers(1, 65535), min_size=1, max_size=2, unique=True))
def test_the_ports_beside_are_the_widest_run(ports: list[int]) -> None:
    rule = own_source(TunnelRules(vxlan_ports=tuple(ports), sources=("d",)), True)[0]
    assert isinstance(rule.action, Masquerade)
    assert rule.action.ports is not None
    first, last = rule.action.ports
    assert 1024 <= first <= last <= 65535
    assert not any(first <= port <= last for port in ports)
    assert last - first >= (32000 if len(ports) == 1 else 21000)


def test_no_tunnels_no_rules() -> None:
    none = TunnelRules()
    assert not incoming(4, none, Accept(), Drop())
    assert not outgoing(4, none, Accept())
    assert not untracked(none)
    assert not own_source(none, True)
