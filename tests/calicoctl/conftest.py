"""`ctl`: the command line against a real etcd, in this process."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from calicoctl.main import run
from libcalico.process import paths
from tests.support.etcd import Etcd


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
