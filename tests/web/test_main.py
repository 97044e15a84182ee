"""`calicoctl web` and `calico-web`: options, refusals, and the page served until a signal."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from flows.place import Place
from tests.calicoctl.conftest import Ctl, ctl
from tests.support.etcd import Etcd
from tests.support.patience import HANG, wait_for
from tests.web import world
from tests.web.browser import environment, serving
from web.main import _place, main, parser

__all__ = ["ctl"]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--listen", "0.0.0.0"], "--token-review"),
        (["--listen", "0.0.0.0", "--token-review"], "--tls-cert"),
        (["--status", "x"], "NODE=FOLDER"),
        (["--aggregator", "here"], "HOST:PORT"),
        (["--aggregator-ca", "ca.pem"], "--aggregator"),
        (["--aggregator", "a:1", "--aggregator-ca", "ca.pem"], "certificate"),
        (["--port", "99999"], "--port"),
    ],
)
def test_what_is_wrong_is_named(
    given: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(given) == 1
    told = capsys.readouterr().err
    assert named in told
    assert len(told.strip().splitlines()) == 1


def test_calicoctl_hands_its_options_on(ctl: Ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    run: list[list[str]] = []
    monkeypatch.setattr("calicoctl.commands.web.os.execv", lambda _, words: run.append(words))
    ctl("web", "--port", "0", "--status", "n1=/x", "-c", "/y", "--aggregator", "a:1")
    assert run == [["calico-web", "--config=/y", "--port=0", "--aggregator=a:1", "--status=n1=/x"]]


def test_the_aggregator_is_named_as_for_other_commands(
    ctl: Ctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    run: list[list[str]] = []
    monkeypatch.setattr("calicoctl.commands.web.os.execv", lambda _, words: run.append(words))
    for name in ("CA", "CERT", "KEY"):
        monkeypatch.setenv(f"GOLDMANE_{name}_FILE", f"/{name}")
    ctl("web")
    assert run.pop() == ["calico-web"]
    monkeypatch.setenv("GOLDMANE_ADDRESS", "127.0.0.1:7443")
    ctl("web", "--aggregator-name", "goldmane")
    given = parser().parse_args(run[0][1:])
    assert _place(given) == Place("127.0.0.1:7443", "/CA", "/CERT", "/KEY", "goldmane")


def test_without_the_program_it_says_how_to_get_it(
    ctl: Ctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calicoctl.commands.web.shutil.which", lambda *_, **__: None)
    done = ctl("web")
    assert done.code == 1
    assert "pip install 'muslin[web]'" in done.err


def test_agents_and_calicoctl_import_nothing_of_it() -> None:
    program = (
        "import sys, calicoctl.main, calicoctl.commands.web, felix.main, bgp.main, cni.main,"
        " node.main, controllers.main;"
        "print([n for n in sys.modules if n.split('.')[0] in"
        " ('nicegui', 'fastapi', 'starlette', 'uvicorn', 'web')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


def test_it_serves_and_ends_by_a_signal(etcd: Etcd, tmp_path: Path) -> None:
    pytest.importorskip("nicegui", reason="the package nicegui is not installed: `./run install`")
    world.store(etcd)
    with serving(tmp_path, environment(etcd)) as url:
        with urllib.request.urlopen(f"{url}/health", timeout=HANG) as answer:
            assert answer.headers["content-security-policy"]
            assert "Health" in answer.read().decode()
        with urllib.request.urlopen(f"{url}/healthz", timeout=HANG) as answer:
            assert answer.read() == b"ok\n"
        port = url.rpartition(":")[2]
        # It gives up after 8 s, which a busy machine may take.
        wait_for(lambda: main(["--check", f"--port={port}"]) == 0, "the probe is answered")
    assert main(["--check", f"--port={port}"]) == 1
    assert "Traceback" not in (tmp_path / "web.log").read_text()
