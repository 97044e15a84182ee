"""What the kernel itself refuses: matches, targets and sets it lacks, and nftables as a whole.

The guest's modules can be hidden (tests/uml/without_modules.py), so nothing stands in for the
kernel: what it does not take closes the policy that needs it, and no other (design 0009); where
felix's own rules need it no pod is reached until it is there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import uml
from tests.support.patience import HANG

pytestmark = [
    pytest.mark.uml,
    pytest.mark.skipif(bool(uml.missing()), reason=uml.missing() or "there is a guest kernel"),
]
LIMIT = 8 * HANG * uml.SLOWER
"""Seconds: longer than any wait inside."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The guest's report."""
    return report(tmp_path_factory.mktemp("out"))


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same of modules that come late."""
    return report(tmp_path_factory.mktemp("late"), "late")


def report(out: Path, *words: str) -> dict[str, Any]:
    """What a guest found."""
    command = [sys.executable, "-m", "tests.uml.without_modules", *words]
    guest = uml.run(command, out, timeout=LIMIT)
    print(guest.output)
    assert guest.code == 0, f"the guest ended with {guest.code}"
    said: dict[str, Any] = json.loads((out / "result.json").read_text())
    return said


@pytest.mark.promise("PAIN-28")
def test_a_policy_that_logs_closes_where_the_kernel_cannot_log(found: dict[str, Any]) -> None:
    assert "legacy" in found, found.get("error")
    seen = found["legacy"]
    (named,) = seen["named"]
    assert "cali-pi-gnp/one" in named
    assert seen["other"], "the other policy is in force and open"
    assert not seen["leaked"], "closed with all that it allows"
    assert seen["others named"] == []


def test_without_nftables_felix_says_so_and_no_pod_is_reached(found: dict[str, Any]) -> None:
    assert "without nftables" in found, found.get("error")
    seen = found["without nftables"]
    assert not seen["ready"]
    assert seen["route"] == ""
    assert "this kernel has no nftables for IPv4 (nf_tables)" in seen["log"]
    assert "nftablesMode Disabled" in seen["log"]


LACKS = {
    "ipt_rpfilter": ("raw of IPv4", "no match or target rpfilter of iptables", "ipt_rpfilter"),
    "ip_set_hash_net": ("cali40masq-ipam-pools", "no such sets", "ip_set_hash_net"),
    "xt_set": ("nat of IPv4", "no match or target set of iptables", "ipt_set"),
    "ip_set": ("dataplane", "list IP sets", "ip_set"),
}


@pytest.mark.parametrize("module", LACKS)
def test_a_module_that_felix_needs_is_named_and_comes_late(
    late: dict[str, Any], module: str
) -> None:
    """No pod is reached without it, the condition has the cure, and then all is in force."""
    assert module in late, late.get("error")
    seen, (what, lack, cure) = late[module], LACKS[module]
    named = [one for one in seen["told"] if one.startswith(f"{what}: ")]
    assert len(named) == 1, seen["told"]
    assert lack in named[0]
    assert f"{cure})" in named[0].partition("modprobe ")[2]
    assert cure in seen["log"], "the log says it too"
    assert not seen["ready"]
    assert seen["routes"] == ["", ""]
    assert seen["open"] == [False, False]
    assert not seen["leaked"], "the policy is in force from the first packet on"
