"""IPV-1: kube-proxy's ipvs mode, in a kernel that has IPVS: policy holds through a service.

The services are made by hand (tests/uml/ipvs.py); at full size only, one boot.
"""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any

import pytest

from tests.support import uml
from tests.support.patience import HANG
from tests.uml.ipvs import REACH, WAYS

NO_TOOL = "" if shutil.which("ipvsadm", path="/usr/sbin:/sbin") else "ipvsadm is not installed"
pytestmark = [
    pytest.mark.uml,
    pytest.mark.skipif(bool(uml.missing()), reason=uml.missing() or "there is a guest kernel"),
    pytest.mark.skipif(bool(NO_TOOL), reason=NO_TOOL or "there is ipvsadm"),
]
LIMIT = 8 * HANG * uml.SLOWER
"""Seconds: longer than all waits inside for what each policy opens."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The guest's report."""
    out = tmp_path_factory.mktemp("out")
    command = [sys.executable, "-m", "tests.uml.ipvs"]
    guest = uml.run(command, out, timeout=LIMIT)
    print(guest.output)
    assert guest.code == 0, f"the guest ended with {guest.code}"
    report: dict[str, Any] = json.loads((out / "result.json").read_text())
    assert "error" not in report, (report["error"], report.get("log"), report.get("rules"))
    return report


@pytest.mark.promise("F-89")
@pytest.mark.parametrize(("policy", "reach"), REACH.items())
def test_policy_holds_through_a_service(
    found: dict[str, Any], policy: str, reach: tuple[str, ...]
) -> None:
    assert found[policy] == {way: way in reach for way in WAYS}


def test_who_has_no_endpoint_reaches_no_service(found: dict[str, Any]) -> None:
    assert not found["stray"]


def test_the_connections_went_through_ipvs(found: dict[str, Any]) -> None:
    lines = [line.split() for line in found["connections"].splitlines() if "TCP " in line]
    counts = {words[1]: int(words[2]) for words in lines}
    assert counts["10.96.0.10:80"] >= 5
    assert counts["10.99.7.1:30080"] >= 3


def test_without_the_link_no_rule_is_left(found: dict[str, Any]) -> None:
    assert found["left"] == 0
