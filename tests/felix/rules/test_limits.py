"""The rules of limits, as texts of iptables."""

from __future__ import annotations

from felix.calc.policy_model import EndpointPolicy
from felix.rules.endpoints import Verdicts, endpoint_chains, endpoint_rules
from felix.rules.inputs import Facts, RuleSettings
from felix.rules.iptables import render_rules
from felix.rules.model import Accept, Drop, Marks
from felix.rules.static import tables
from libcalico.conversion.traffic_limits import ChainLimits, PacketRate

MARKS = Marks.allocate(0xFFFF0000)
VERDICTS = Verdicts(Accept(), Drop())
LIMITS = ChainLimits(PacketRate(100, 7), None, 0, 3)


def chains(limits: ChainLimits | None) -> list[tuple[str, ...]]:
    rules = endpoint_rules("cali1", EndpointPolicy(), limits)
    return [render_rules(chain.rules) for chain in endpoint_chains(rules, MARKS, VERDICTS)]


def test_a_rate_goes_before_all_and_a_count_behind_known_connections() -> None:
    to, sent = chains(LIMITS)
    plain_to, plain_sent = chains(None)
    assert to[4:] == plain_to
    assert to[1] == (
        '-m comment --comment "Mark packets within ingress packet rate limit"'
        " -m limit --limit 100/sec --limit-burst 7 --jump MARK --set-mark 0x80000/0x80000"
    )
    assert to[2].endswith("-m mark --mark 0/0x80000 --jump DROP")
    assert to[0] == to[3]
    assert sent[2] == (
        '-m comment --comment "Reject connections over egress connection limit"'
        " -p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN"
        " -m connlimit --connlimit-above 3 --connlimit-mask 0"
        " -j REJECT --reject-with tcp-reset"
    )
    assert (*sent[:2], *sent[3:]) == plain_sent


def test_marks_are_written_only_where_one_is_asked_for() -> None:
    for hosts in (False, True):
        plain = tables(4, RuleSettings(), Facts(hosts=hosts))["mangle"]
        marked = tables(4, RuleSettings(), Facts(hosts=hosts, dscp=(10, 46)))["mangle"]
        rules = {chain.name: render_rules(chain.rules) for chain in marked.chains}
        assert rules["cali-egress-dscp"] == (
            "-m set --match-set cali40dscp-src-10 src --jump DSCP --set-dscp 10",
            "-m set --match-set cali40dscp-src-46 src --jump DSCP --set-dscp 46",
        )
        assert rules["cali-POSTROUTING"][0] == (
            '-m comment --comment "set dscp for traffic leaving cluster."'
            " -m set ! --match-set cali40network-ip-pools dst --jump cali-egress-dscp"
        )
        assert marked.inserts["POSTROUTING"]
        before = {chain.name: render_rules(chain.rules) for chain in plain.chains}
        assert rules["cali-POSTROUTING"][1:] == before.get("cali-POSTROUTING", ())
