"""`ctl`: the command line against a real etcd, in this process.

The fast tier takes some of the planted faults of a lab; what is named by hand meets them all. Which
finding a fault leads to is tested with written answers, in each tier (test_connectivity_judge.py).
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from calicoctl.main import run
from libcalico.process import paths
from tests.support.etcd import Etcd

IN_A_LAB = (
    "test_a_dropped_route_is_named",
    "test_large_packets_that_are_lost_are_named",
    "test_a_service_that_one_node_does_not_serve_is_named",
    "test_a_felix_that_does_not_enforce_is_named",
    "test_a_node_that_is_cut_off_does_not_answer_and_is_named",
)
"""Left to full size."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "MUSLIN_FULL_SIZE" in os.environ:
        return
    left = [item for item in items if item.name.startswith(IN_A_LAB)]
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=left)


@dataclass(frozen=True)
class Done:
    """One finished command."""

    code: int
    out: str
    err: str


Ctl = Callable[..., Done]


def in_this_process(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Ctl:
    """Runs the command line as it is configured by now."""

    def command(*arguments: str, stdin: str = "") -> Done:
        source = SimpleNamespace(buffer=io.BytesIO(stdin.encode()))
        monkeypatch.setattr("calicoctl.documents.sys", SimpleNamespace(stdin=source))
        capfd.readouterr()
        code = run(list(arguments))
        captured = capfd.readouterr()
        return Done(code, captured.out, captured.err)

    return command


@pytest.fixture
def ctl(
    etcd: Etcd,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Ctl:
    """`ctl("get", "pools")` runs a command; `stdin=` is what `-f -` reads."""
    absent = tmp_path_factory.mktemp("config") / "calicoctl.cfg"
    monkeypatch.setattr(paths, "CALICOCTL_CONFIG", absent)
    for name, value in etcd.environment().items():
        monkeypatch.setenv(name, value)

    return in_this_process(monkeypatch, capfd)
