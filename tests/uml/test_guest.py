"""The guest itself: another kernel with what this one may lack, and no trace afterwards (UML-1)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import uml
from tests.support.patience import HANG
from tests.support.uml import ROOT

pytestmark = [
    pytest.mark.uml,
    pytest.mark.skipif(bool(uml.missing()), reason=uml.missing() or "there is a guest kernel"),
]


def test_it_boots_runs_a_command_and_leaves_nothing(tmp_path: Path) -> None:
    mark = ROOT / "written-in-the-guest"
    script = f"ip -br link; touch {mark} && echo kept > /out/kept; exit 7"
    guest = uml.run(["sh", "-c", script], tmp_path, timeout=HANG * uml.SLOWER)
    assert (guest.code, "tunl0" in guest.output) == (7, True), guest
    assert (tmp_path / "kept").read_text() == "kept\n"
    assert not mark.exists()
    shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(tmp_path) not in shown.stdout


def test_a_guest_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    guest = uml.run(["sleep", "600"], tmp_path, timeout=8)
    assert guest.code == 124
    shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(tmp_path) not in shown.stdout
