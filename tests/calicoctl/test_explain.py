"""`explain`, `explain rule` and `policy plan`: the datastore is all that they need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.calicoctl.conftest import Ctl
from tests.support.etcd import Etcd
from tests.support.explain_world import DB, DENY, SHOP, document, host, policy

PLAN = policy("lock", "role == 'web'", "shop", types=["Egress"], order=5, egress=[
    {**DENY, "protocol": "TCP", "destination": {"selector": "role == 'db'"}},
    {"action": "Pass"},
])  # fmt: skip


@pytest.fixture
def shop(ctl: Ctl) -> Ctl:
    """The shop, applied."""
    documents = [d for d in SHOP if d["kind"] not in ("Tier",)]
    done = ctl("apply", "-f", "-", stdin=text([*documents, DB]))
    assert done.code == 0, done.err
    return ctl


def text(documents: list[dict[str, Any]]) -> str:
    return "\n---\n".join(json.dumps(d) for d in documents)


def test_an_answer_names_tier_policy_rule_and_chain(shop: Ctl) -> None:
    done = shop("explain", "shop/web-0", "shop/db-0", "--proto", "tcp", "--port", "5432")
    assert done.code == 0, done.err
    assert done.out.splitlines()[0] == (
        "shop/web-0 (10.65.1.6) -> shop/db-0 (10.65.2.8), tcp port 5432: ALLOWED"
    )
    assert "  egress of pod shop/web-0 on node1: allowed\n    by Profile kns.shop, egress[0]" in (
        done.out
    )
    assert "    by tier default, NetworkPolicy shop/db, ingress[2]\n" in done.out
    assert "       action: Allow\n" in done.out
    assert "         selector: role == 'web'\n" in done.out
    assert "    in filter cali-pi-np/shop/db rule 4\n" in done.out


def test_without_a_port_all_are_told(shop: Ctl) -> None:
    done = shop("explain", "-n", "shop", "web-0", "db-0", "--proto", "tcp")
    assert sum("->" in line for line in done.out.splitlines()) == 2
    assert "tcp 5432,8080-8090: ALLOWED" in done.out
    assert "by end of tier default: no policy of it allows the packet" in done.out


def test_the_same_as_json(shop: Ctl) -> None:
    done = shop("explain", "lab/guest", "10.65.2.8", "--port", "5432", "-o", "json")
    tree = json.loads(done.out)
    assert tree["destination"]["title"] == "shop/db-0"
    (answer,) = tree["answers"]
    assert answer["allowed"] is False
    denied = answer["stations"][-1]
    assert (denied["by"], denied["tier"]) == ("end of tier", "default")
    assert denied["kernel"]["chain"] == "cali-tw-cali28"
    assert denied["before"][0]["policy"]["name"] == "db"
    v6 = json.loads(shop("explain", "lab/guest", "fd65::2:8", "-o", "json").out)
    assert v6["answers"][0]["example"]["destination"] == "fd65::2:8"


def test_what_nearly_matched_is_told_with_the_clause(shop: Ctl) -> None:
    done = shop("explain", "shop/web-0", "shop/db-0", "--proto", "udp", "--port", "5432")
    assert (
        "  nearly allowed:\n"
        "    tier default, NetworkPolicy shop/db, ingress[2] (ingress of shop/db-0)\n"
        "      but for protocol: TCP\n"
        "        the packet is udp\n"
        "        hint: the port matches: add the same rule for UDP\n"
    ) in done.out
    told = json.loads(shop("explain", "lab/guest", "shop/db-0", "--port", "5432", "-o", "json").out)
    (miss,) = told["answers"][0]["nearMisses"]
    assert miss["policy"] == {"kind": "NetworkPolicy", "namespace": "shop", "name": "db"}
    assert [(f["field"], f["label"]) for f in miss["missed"]] == [
        ("source.selector", "role"), ("source.namespaceSelector", None),
    ]  # fmt: skip


def test_staged_policies_are_told_as_what_would_be(shop: Ctl) -> None:
    staged = document(
        "StagedNetworkPolicy", "lock", "shop", tier="default", selector="role == 'db'",
        types=["Ingress"], ingress=[DENY], stagedAction="Set", order=1,
    )  # fmt: skip
    assert shop("apply", "-f", "-", stdin=text([staged])).code == 0
    done = shop("explain", "shop/web-0", "shop/db-0", "--port", "5432")
    assert ": ALLOWED" in done.out
    assert "would be denied if the staged policies were in force" in done.out
    assert "NetworkPolicy shop/lock, ingress[0]" in done.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("shop/web-9", "shop/db-0"), "neither a pod shop/web-9 nor a host endpoint shop/web-9"),
        (("shop/web-0", "shop/db-0", "--proto", "tpc"), "--proto"),
        (("shop/web-0", "shop/db-0", "--port", "70000"), "--port"),
        (("shop/web-0", "shop/db-0", "--proto", "icmp", "--port", "1"), "icmp has no ports"),
        (("shop/web-0", "shop/db-0", "--icmp-type", "8"), "needs --proto icmp"),
        (("shop/web-0", "shop/db-0", "--source-port", "8"), "needs --port"),
        (("shop/web-0", "203.0.113.9", "--ip-version", "6"), "not both an IPv6 address"),
        (("shop/web-0",), "DST"),
        (("rule", "cali-pi-np/shop/nothing"), "no policy, profile or endpoint"),
        (("rule", "cali-pi-np/shop/db:0"), "the number of a rule, from 1"),
        (("rule", "cali-pi-np/shop/db:99"), "has no rule 99: it has"),
    ],
)
def test_what_cannot_be_answered_is_said(
    shop: Ctl, arguments: tuple[str, ...], sentence: str
) -> None:
    done = shop("explain", *arguments)
    assert done.code == 1
    assert sentence in done.err
    assert len(done.err.splitlines()) <= 2


def test_a_rule_of_the_kernel_leads_back_to_the_policy(shop: Ctl) -> None:
    done = shop("explain", "rule", "cali-pi-np/shop/db:4")
    assert done.out.splitlines()[0] == (
        "filter cali-pi-np/shop/db: NetworkPolicy shop/db, tier default, ingress"
    )
    assert "    4  [ingress[2]]  -p tcp -m set --match-set cali40s:" in done.out
    assert "         action: Allow\n" in done.out
    whole = shop("explain", "rule", "filter-cali-pi-np/shop/db", "-o", "json")
    (meaning,) = json.loads(whole.out)
    assert [rule["field"] for rule in meaning["rules"]] == [
        "ingress[0]", "ingress[1]", "ingress[1]", "ingress[2]",
    ]  # fmt: skip
    assert meaning["policy"] == {"kind": "NetworkPolicy", "name": "db", "namespace": "shop"}
    pod = shop("explain", "rule", "cali-tw-cali28:7")
    assert "filter cali-tw-cali28: pod shop/db-0, ingress, on node node2" in pod.out
    assert "End of tier default" in pod.out
    assert "defaultEndpointToHostAction" in shop("explain", "rule", "cali-wl-to-host").out


def test_a_chain_whose_name_is_a_digest_is_found(shop: Ctl) -> None:
    long = policy("a-name-that-does-not-fit-into-a-chain-of-the-kernel", ingress=[DENY])
    gate = host("gate", "node1", "eth0", expectedIPs=["10.99.0.1"])
    assert shop("apply", "-f", "-", stdin=text([long, gate])).code == 0
    told = json.loads(shop("explain", "shop/web-0", "shop/web-1", "-o", "json").out)
    chain = told["answers"][0]["stations"][-1]["kernel"]["chain"]
    assert chain.startswith("cali-pi-_")
    assert "GlobalNetworkPolicy a-name-that-does-not-fit" in shop("explain", "rule", chain).out
    own = shop("explain", "rule", "cali-fhfw-eth0")
    assert "host endpoint gate, forward policy, ingress, on node node1" in own.out


def test_a_plan_tells_who_would_lose_what(shop: Ctl) -> None:
    done = shop("policy", "plan", "-f", "-", stdin=text([PLAN]))
    assert done.code == 0, done.err
    assert done.out.startswith("Would be DENIED:\n  tcp 5432,8080-8090\n")
    assert "    from namespace=shop role=web (2 pods, such as shop/web-0)\n" in done.out
    assert "    to   namespace=shop role=db (shop/db-0)\n" in done.out
    assert "    then denied: egress, tier default, NetworkPolicy shop/lock, egress[0]\n" in done.out
    assert shop("get", "networkpolicy", "-n", "shop").out.count("lock") == 0
    tree = json.loads(shop("policy", "plan", "-f", "-", "-o", "json", stdin=text([PLAN])).out)
    assert tree["whole"] is True
    assert [c["becomes"] for c in tree["changes"]] == ["denied"]


def test_a_plan_of_a_deletion_and_of_nothing(shop: Ctl) -> None:
    done = shop("policy", "plan", "--delete", "-f", "-", stdin=text([DB]))
    assert done.out.startswith("Would be ALLOWED:\n")
    nothing = shop("policy", "plan", "-f", "-", stdin=text([DB]))
    assert nothing.out.startswith("No flow between pods")
    gate = host("gate", "node1", "eth0", expectedIPs=["10.99.0.1"])
    other = shop("policy", "plan", "-f", "-", stdin=text([gate]))
    assert "HostEndpoint gate has no part in" in other.out


def test_a_script_reads_the_verdict_from_the_exit_status(shop: Ctl) -> None:
    plan = ("policy", "plan", "--exit-code", "-f", "-")
    assert shop(*plan, stdin=text([PLAN])).code == 2
    assert shop(*plan, "-o", "json", stdin=text([PLAN])).code == 2
    assert shop(*plan, stdin=text([DB])).code == 0
    assert shop(*plan, stdin="x").code == 1
    packet = ("explain", "shop/web-0", "shop/db-0", "--proto", "tcp", "--exit-code", "--port")
    assert shop(*packet, "5432").code == 0
    assert shop(*packet, "22").code == 2
    assert shop(*packet, "22", "-c", "/nowhere").code == 1


def test_a_plan_of_what_could_not_be_applied_is_refused(shop: Ctl) -> None:
    wrong = policy("wrong", ingress=[{"action": "Alow"}])
    done = shop("policy", "plan", "-f", "-", stdin=text([wrong]))
    assert done.code == 1
    assert "action" in done.err


def test_live_needs_felix_and_root(shop: Ctl, etcd: Etcd) -> None:
    code = (
        "import os, sys\nos.setuid(65534)\nfrom calicoctl.main import run\n"
        "sys.exit(run(sys.argv[1:]))\n"
    )
    environment = {"PATH": os.environ["PATH"], **etcd.environment()}
    done = subprocess.run(
        [sys.executable, "-c", code, "explain", "shop/web-0", "shop/db-0", "--live"],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 1
    assert "felix answers root only" in done.stderr


def test_help_tells_of_both_commands(ctl: Ctl) -> None:
    out = ctl("explain", "--help").out
    assert "SRC DST" in out
    assert "CHAIN[:N]" in out
    assert "--live" in ctl("explain", "flow", "--help").out
