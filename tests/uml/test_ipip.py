"""IP-in-IP in a kernel that has it: felix's devices, routes and rules, packets that were wrapped.

The lab runs inside a guest (tests/uml/guest.py, which lists the scenarios); here its report is
judged. The fast tier boots once, without bgp; at full size the mode of a pool is switched under
traffic, Never, CrossSubnet, Always, VXLAN and back.
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
"""Seconds: longer than any wait inside, the longest of which is six times guest.PATIENCE."""


def report(scenario: str, out: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.uml.guest", scenario]
    guest = uml.run(command, out, timeout=LIMIT)
    print(guest.output)
    assert guest.code in (0, 1), f"the guest ended with {guest.code}"
    found: dict[str, Any] = json.loads((out / "result.json").read_text())
    assert "error" not in found, found["error"]
    return found


def judge_always(found: dict[str, Any]) -> None:
    route = found["route"]
    assert (route["dev"], route["gateway"]) == ("tunl0", found["far"])
    assert "onlink" in route["flags"]
    assert found["mtu"] == 1480
    assert found["up"]
    (address,) = found["addresses"]
    assert address.startswith("10.65.")
    assert found["wrapped"] >= 2
    allowed, dropped = (
        found["rules"].index(said)
        for said in ("Allow IPIP packets from Calico hosts", "Drop IPIP packets from non-Calico")
    )
    assert allowed < dropped
    assert "10.99.1.1" in found["sets"]
    assert not [told for _, told in found["conditions"] if "IP-in-IP" in told]


@pytest.mark.promise("F-61", "M-143", "M-144", "M-146", "F-58")
def test_everything_goes_through_tunl0(tmp_path: Path) -> None:
    judge_always(report("one_way", tmp_path))


@pytest.mark.promise("F-61", "F-62", "M-143", "M-146", "M-147", "M-149")
def test_a_pools_mode_is_switched_under_traffic(tmp_path: Path) -> None:
    found = report("switches", tmp_path)
    judge_always(found.pop("always"))
    assert list(found) == ["CrossSubnet", "Always", "VXLAN", "Never"]
    for title, seen in found.items():
        print(title, *seen["lines"], sep="\n")
        assert seen["sent"] > 50, title
        assert seen["lost_after"] == 0, (title, seen["lines"])
        assert not seen["stream"], (title, seen["stream"])
        assert seen["kept"], title
