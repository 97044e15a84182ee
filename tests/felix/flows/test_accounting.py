"""ACC-1: felix puts back what it switched, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from felix.flows.accounting import SETTING, Accounting
from linux import sysctl
from tests.support.netns import network_namespace


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[Path]:
    with network_namespace("accounting") as space, space.entered():
        # The first rule that looks at connections brings the setting.
        space.run("nft", "add table ip t")
        space.run("nft", "add chain ip t c { type filter hook output priority 0; }")
        space.run("nft", "add rule ip t c ct state new accept")
        yield tmp_path / "private/mark"


def test_what_felix_switched_on_it_switches_off_even_after_a_restart(mark: Path) -> None:
    sysctl.set(SETTING, 0)
    Accounting(mark).want(True)
    assert sysctl.get(SETTING) == "1"
    Accounting(mark).want(True)
    Accounting(mark).want(False)
    assert sysctl.get(SETTING) == "0"
    assert not mark.exists()


def test_what_an_operator_switched_on_stays_on(mark: Path) -> None:
    sysctl.set(SETTING, 1)
    accounting = Accounting(mark)
    accounting.want(True)
    accounting.want(False)
    assert sysctl.get(SETTING) == "1"


def test_a_node_without_the_setting_says_so(mark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("felix.flows.accounting.SETTING", "net/netfilter/no_such_setting")
    accounting = Accounting(mark)
    accounting.want(True)
    assert "are not counted: read sysctl net/netfilter/no_such_setting" in accounting.problem
    accounting.want(False)
    assert accounting.problem == ""
