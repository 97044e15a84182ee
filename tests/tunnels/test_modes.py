"""docs/modes.md names every mode there is, what it needs of the fabric, and what was measured.

The bench that measures them runs here at a tiny size; at full size IP-in-IP in the guest as well.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from felix.config.parameters import PARAMETERS
from felix.dataplane.devices.mtu import IPIP_HEADER, VXLAN_HEADER, VXLAN_V6_HEADER
from libcalico.model import codec
from libcalico.model.validation.pool import MODES
from libcalico.model.validation.validate import problems
from node.settings.environment import BACKENDS
from tests.bench import modes as bench
from tests.support import uml

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "modes.md").read_text()
FULL = "MUSLIN_FULL_SIZE" in os.environ
NEVER = "Never"


def tables() -> list[list[list[str]]]:
    """The page's tables, row by row, without the line below the head."""
    found = re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE)
    return [
        [[cell.strip() for cell in line.strip("|\n").split("|")] for line in text.splitlines()]
        for text in found
    ]


def modes() -> list[dict[str, str]]:
    """The rows of the table of modes."""
    head, _, *rows = tables()[0]
    return [dict(zip(head, row, strict=True)) for row in rows]


def words(cell: str) -> set[str]:
    """What stands in backquotes."""
    return set(re.findall(r"`([^`]+)`", cell))


def allowed(ipip: str, vxlan: str) -> bool:
    """Whether a pool may have these modes."""
    tree = {
        "apiVersion": "projectcalico.org/v3",
        "kind": "IPPool",
        "metadata": {"name": "pods"},
        "spec": {"cidr": "10.0.0.0/16", "ipipMode": ipip, "vxlanMode": vxlan},
    }
    return not problems(codec.resource_from_tree(tree))


def test_every_mode_that_can_be_asked_for_has_its_row() -> None:
    told = {
        (backend, *words(row["ipipMode"]), *words(row["vxlanMode"]))
        for row in modes()
        for backend in words(row["Backend"])
    }
    pools = {pair for pair in itertools.product(MODES, MODES) if allowed(*pair)}
    assert len(pools) == 5
    routed = {(b, *pair) for b in BACKENDS if b != "none" for pair in pools}
    assert told == routed | {("none", NEVER, NEVER)}


def test_what_a_row_asks_of_the_fabric_is_what_the_code_does() -> None:
    port = next(each.default for each in PARAMETERS if each.attribute == "vxlan_port")
    for row in modes():
        between, header = row["Between nodes"], int(row["Header"])
        ipip, vxlan = words(row["ipipMode"]) != {NEVER}, words(row["vxlanMode"]) != {NEVER}
        assert ("protocol 4" in between) is ipip
        assert (f"UDP {port}" in between) is vxlan
        assert ("TCP 179" in between) is ("bird" in words(row["Backend"]))
        assert header == (IPIP_HEADER if ipip else VXLAN_HEADER if vxlan else 0)
        plain = not (ipip or vxlan) or any(
            "CrossSubnet" in row[m] for m in ("ipipMode", "vxlanMode")
        )
        assert ("pods' own packets" in between) is (plain and row["Backend"] != "`none`")
    assert f"IPv6 has every mode but IP-in-IP; the header of its VXLAN is {VXLAN_V6_HEADER}" in PAGE


def test_figures_are_told_of_all_that_is_measured() -> None:
    host, guest = ([row[0] for row in table[2:]] for table in tables()[1:])
    assert set(guest) == {bench.PEER, *bench.MODES}
    assert set(host) | {"ipip"} == set(guest)


def run(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.modes", "--json", "--rounds", "1", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["results"]
    return found


def judge(found: dict[str, Any], names: set[str], host_mtu: int = 1500) -> None:
    headers = {"unencapsulated": 0, "vxlan": VXLAN_HEADER, "ipip": IPIP_HEADER}
    assert set(found) == {bench.PEER, *names}
    for name, figures in found.items():
        assert figures["gbit_s"] > 0
        assert 0 < figures["p50_us"] <= figures["p99_us"]
        if name != bench.PEER:
            assert figures["pod_mtu"] == host_mtu - headers[name]
            assert figures["of_peers_throughput"] > 0


@pytest.mark.promise("M-250")
def test_the_bench_measures_every_mode() -> None:
    small = ["--seconds", "0.2", "--requests", "100", *([] if FULL else ["--no-guest"])]
    found = run(*small)
    if bench.host_has_ipip():
        judge(found["host"], set(bench.MODES))
        return
    judge(found["host"], set(bench.MODES) - {"ipip"})
    if FULL and not uml.missing():
        judge(found["guest"], set(bench.MODES))
    else:
        assert "not measured" in found["guest"]
