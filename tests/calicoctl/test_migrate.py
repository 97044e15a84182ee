"""`ipam migrate` on a real etcd: an operator moves a pool, stops halfway, goes on, deletes it."""

from __future__ import annotations

import json

import pytest

from tests.calicoctl.conftest import Ctl
from tests.calicoctl.test_commands import P1, WEP, document
from tests.calicoctl.test_ipam import assign
from tests.support.etcd import Etcd

FROM_TO = ("ipam", "migrate", "--from", "p1", "--to", "p2")
P2 = document("IPPool", "p2", cidr="10.66.0.0/16", blockSize=28, natOutgoing=True)


@pytest.mark.promise("F-34")
def test_a_pool_is_moved(ctl: Ctl, etcd: Etcd) -> None:
    assert ctl("apply", "-f", "-", stdin=P1 + "\n---\n" + P2).err == ""
    ctl("apply", "-f", "-", stdin=P2.replace("false", "true"))
    (address,) = assign_from_p1(ctl, etcd)
    endpoint = WEP.replace("10.65.0.1/32", f"{address}/32")
    assert ctl("apply", "-f", "-", stdin=endpoint).err == ""

    before = etcd.keys("/calico/")
    dry = ctl(*FROM_TO, "--dry-run")
    assert dry.err == ""
    assert dry.out.splitlines()[-1] == (
        "Dry run, nothing was changed. A run would: disable p1 for new addresses;"
        " claim 1 block(s) of p2; leave 1 pod(s) to be restarted."
    )
    assert etcd.keys("/calico/") == before
    assert not spec(ctl, "p1").get("disabled")

    run = ctl(*FROM_TO)
    assert run.err == ""
    lines = run.out.splitlines()
    assert lines[0] == "Pool p1 is disabled: from now on p2 serves new pods."
    assert lines[1] == "Claimed 1 block(s) of p2 for node1."
    assert f"  default/web-0  {address}" in lines
    assert lines[-1].startswith("1 pod(s) still hold addresses of p1.")
    assert spec(ctl, "p1")["disabled"]

    waiting = ctl(*FROM_TO, "--wait", "100ms")
    assert (waiting.code, "1 pod(s) still hold" in waiting.err) == (1, True)

    # The pod is restarted.
    assert ctl("ipam", "release", "--ip", address).code == 0
    (moved,) = assign(etcd, "node1", "web-0")
    assert moved.startswith("10.66.")
    assert ctl("apply", "-f", "-", stdin=WEP.replace("10.65.0.1/32", f"{moved}/32")).err == ""

    done = ctl(*FROM_TO, "--delete")
    assert done.err == ""
    assert done.out.splitlines()[-1] == "Nothing is left in p1: the pool is deleted."
    left = [key for key in etcd.keys("/calico/") if "p1" in key or "10.65." in key]
    assert left == []
    assert ctl("ipam", "check").out.splitlines()[-1] == "Check complete; found 0 problems."


def assign_from_p1(ctl: Ctl, etcd: Etcd) -> list[str]:
    """An address of p1, whatever else there is."""
    p2 = ctl("get", "pool", "p2", "-o", "json").out
    ctl("delete", "pool", "p2")
    addresses = assign(etcd, "node1", "web-0")
    tree = json.loads(p2)
    tree["metadata"] = {"name": "p2"}
    assert ctl("create", "-f", "-", stdin=json.dumps(tree)).err == ""
    return addresses


def spec(ctl: Ctl, name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(ctl("get", "pool", name, "-o", "json").out)["spec"]
    return found


def test_a_move_is_taken_back(ctl: Ctl, etcd: Etcd) -> None:
    assert ctl("apply", "-f", "-", stdin=P1 + "\n---\n" + P2).err == ""
    assert ctl(*FROM_TO).code == 0
    assert spec(ctl, "p1")["disabled"]
    other = document("IPPool", "p3", cidr="10.67.0.0/16")
    assert ctl("apply", "-f", "-", stdin=other).code == 0
    elsewhere = ctl("ipam", "migrate", "--from", "p1", "--to", "p3")
    assert (elsewhere.code, "being moved to p2" in elsewhere.err) == (1, True)
    back = ctl(*FROM_TO, "--abort")
    assert (back.code, back.err) == (0, "")
    assert not spec(ctl, "p1").get("disabled")
    assert ctl(*FROM_TO, "--abort").code == 1


def test_what_cannot_be_moved_is_refused(ctl: Ctl) -> None:
    six = document("IPPool", "six", cidr="fd65::/64")
    assert ctl("apply", "-f", "-", stdin=P1 + "\n---\n" + six).err == ""
    for arguments, told in (
        (["--from", "p1", "--to", "p1"], "cannot move to itself"),
        (["--from", "p1", "--to", "six"], "p1 is IPv4, six is IPv6"),
        (["--from", "p1", "--to", "p9"], "there is no IP pool p9"),
        (["--from", "p1", "--to", "six", "--wait", "soon"], "--wait: 'soon'"),
        (["--from", "p1", "--to", "six", "--abort", "--dry-run"], "--abort goes with"),
        (["--from", "p1"], "--to"),
    ):
        refused = ctl("ipam", "migrate", *arguments)
        assert refused.code == 1
        assert told in refused.err
