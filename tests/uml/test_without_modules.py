"""What the kernel itself refuses: a target it lacks, and nftables as a whole (design 0009).

The guest's modules can be hidden (tests/uml/without_modules.py), so nothing stands in for the
kernel: what it does not take closes the policy that needs it, and no other.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.support import uml

pytestmark = [
    pytest.mark.uml,
    pytest.mark.skipif(bool(uml.missing()), reason=uml.missing() or "there is a guest kernel"),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The guest's report."""
    out = tmp_path_factory.mktemp("out")
    command = [sys.executable, "-m", "tests.uml.without_modules"]
    guest = uml.run(command, out, timeout=60 * uml.SLOWER)
    print(guest.output)
    assert guest.code == 0, f"the guest ended with {guest.code}"
    report: dict[str, Any] = json.loads((out / "result.json").read_text())
    return report


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
