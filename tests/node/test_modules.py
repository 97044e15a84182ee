"""Kernel modules at start-up: found, loaded, tried out, and those missing named once."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from node.start import modules
from node.start.modules import WANTED, load, startup_modules
from tests.support.patience import HANG


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may need long for a program or a namespace."""
    monkeypatch.setattr(modules, "LIMIT", HANG)


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def machine(root: Path, *loaded: str) -> Path:
    """A file system whose kernel tells these modules."""
    (root / "proc").mkdir(parents=True)
    (root / "proc/modules").write_text("".join(f"{name} 16384 0 - Live 0x0\n" for name in loaded))
    return root


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `modprobe` that knows ip_set and xt_set; nothing works by trial."""
    bin_dir = tmp_path / "bin"
    program(
        bin_dir,
        "modprobe",
        f'echo "$@" >> {tmp_path}/asked\ncase $1 in ip_set|xt_set) exit 0;; esac\n'
        'echo "FATAL: Module $1 not found" >&2; exit 1',
    )
    program(bin_dir, "unshare", '[ "$*" = "--net true" ]')
    monkeypatch.setenv("PATH", f"{bin_dir}:{os.environ['PATH']}")
    return tmp_path / "asked"


@pytest.mark.promise("M-165")
def test_what_is_not_there_is_loaded_and_the_missing_are_named_once(
    commands: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    missing = asyncio.run(load(machine(tmp_path / "root", "vxlan")))
    assert [one.names[0] for one in missing] == ["ip_tables", "ipip"]
    assert sorted(commands.read_text().split()) == ["ip_set", "ip_tables", "ipip", "xt_set"]
    (warning,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert warning.startswith("this kernel has no ip_tables (IPv4 rules), ipip (pools that")
    assert "loaded kernel modules: ip_set, xt_set" in caplog.text


def test_who_may_not_try_says_nothing_of_what_may_be_built_in(
    commands: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A container without CAP_SYS_ADMIN: whatever it does not find may still be there."""
    program(tmp_path / "bin", "unshare", "exit 1")
    assert asyncio.run(load(machine(tmp_path / "root", "vxlan"))) == ()
    assert "this kernel has no" not in caplog.text


def test_a_kernel_that_has_all_is_left_alone(
    commands: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert asyncio.run(load(machine(tmp_path / "root", *WANTED))) == ()
    assert not commands.exists()
    assert not caplog.records


def test_trials_tell_what_this_kernel_can_do() -> None:
    """Against the kernel that runs here: what a trial denies cannot be made in a namespace."""
    for module in startup_modules():
        works = asyncio.run(modules._works(module))
        if module.names[0] in ("ip_set", "ip_tables", "vxlan"):
            assert works, f"the lab needs {module.names[0]}"


def test_every_wanted_module_is_in_the_table_and_has_a_trial() -> None:
    assert [one.names[0] for one in startup_modules()] == list(WANTED)
    assert set(WANTED) == set(modules.TRIALS)
