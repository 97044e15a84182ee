"""Names from the datastore for a shell, in time or not at all."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from calicoctl import completing
from calicoctl.terminal import completing_names
from tests.calicoctl.conftest import Ctl
from tests.calicoctl.test_get_options import pool
from tests.support.etcd import Etcd
from tests.support.patience import HANG

HEAD = "apiVersion: projectcalico.org/v3\n"
STORED = "---\n".join(
    (
        pool("green", "10.1.0.0/16"),
        pool("grey", "10.2.0.0/16"),
        f"kind: Node\n{HEAD}metadata: {{name: node1}}\n",
        f"kind: Profile\n{HEAD}metadata: {{name: kns.shop}}\nspec: {{}}\n",
        f"kind: NetworkPolicy\n{HEAD}metadata: {{name: web, namespace: shop}}\nspec: {{}}\n",
    )
)


USUAL = ["-m", "calicoctl.main"]
PATIENT = [
    "-c",
    "from calicoctl.terminal import completing_names; from calicoctl.main import main;"
    f" completing_names.SECONDS = {HANG}; main()",
]
"""The program where an answer is to come, however slow the machine: as long as a test waits."""


@pytest.fixture
def stored(ctl: Ctl, monkeypatch: pytest.MonkeyPatch) -> Ctl:
    """Objects of some kinds, which are waited for."""
    monkeypatch.setattr(completing_names, "SECONDS", HANG)
    done = ctl("apply", "-f", "-", stdin=STORED)
    assert done.code == 0, done.err
    return ctl


def offered(*arguments: str) -> list[str]:
    *before, incomplete = arguments
    return [str(item.value) for item in completing.words(before, incomplete)]


@pytest.mark.promise("F-106")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("get pools ", ["green", "grey"]),
        ("get pools gree", ["green"]),
        ("get pools green gr", ["grey"]),
        ("delete ippool gr", ["green", "grey"]),
        ("patch node ", ["node1"]),
        ("label nodes n", ["node1"]),
        ("get networkpolicies -n shop ", ["web"]),
        ("get networkpolicies ", []),
        ("get networkpolicies -n s", ["shop"]),
        ("node bgp drain ", ["node1"]),
        ("ipam migrate --from g", ["green", "grey"]),
        ("get banana ", []),
        ("get pools -o js", ["json", "jsonpath=", "jsonpath-file="]),
    ],
)
def test_names_from_the_datastore(stored: Ctl, line: str, words: list[str]) -> None:
    assert offered(*line.split(" ")) == words


def test_the_configuration_that_stands_there_is_asked(
    stored: Ctl, etcd: Etcd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in etcd.environment():
        monkeypatch.delenv(name)
    file = tmp_path / "c.cfg"
    file.write_text(
        f"{HEAD}kind: CalicoAPIConfig\nspec: {{datastoreType: etcdv3,"
        f" etcdEndpoints: '{etcd.endpoint}'}}\n"
    )
    assert offered("-c", str(file), "get", "pools", "gre") == ["green", "grey"]
    assert offered("get", "pools", "-c", str(file), "gre") == ["green", "grey"]
    assert offered("get", "pools", "gre") == []


def test_a_datastore_that_hangs_costs_its_time_and_no_word(
    own_stored: Etcd, tmp_path: Path
) -> None:
    own_stored.pause()
    try:
        done = asked("calicoctl get pools g", own_stored.environment())
    finally:
        own_stored.resume()
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
    found = asked("calicoctl get pools g", own_stored.environment(), PATIENT)
    assert found.stdout.splitlines() == ["plain,green", "plain,grey"]


def test_no_datastore_is_no_word() -> None:
    done = asked("calicoctl get pools g", {"ETCD_ENDPOINTS": "http://127.0.0.1:1"})
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


def test_the_time_is_bounded() -> None:
    began = time.monotonic()
    # It would take the limit of every test, and more.
    assert completing_names.within(0.05, lambda: time.sleep(HANG), None) is None
    assert time.monotonic() - began < HANG
    assert completing_names.within(HANG, lambda: 5, 0) == 5


@pytest.fixture
def own_stored(
    private_etcd: Etcd, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Etcd:
    """An etcd that may be paused, with the objects."""
    done = subprocess.run(
        [sys.executable, "-m", "calicoctl.main", "apply", "-f", "-"],
        input=STORED,
        text=True,
        capture_output=True,
        env={**os.environ, **private_etcd.environment()},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return private_etcd


def asked(
    line: str, environ: dict[str, str], program: Sequence[str] = USUAL
) -> subprocess.CompletedProcess[str]:
    """What bash gets for a line, in a process of its own."""
    words = line.split(" ")
    complete = {
        "_CALICOCTL_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    return subprocess.run(
        [sys.executable, *program],
        env={**os.environ, **environ, **complete},
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )


def test_a_real_bash_completes_a_name(stored: Ctl, etcd: Etcd, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    program = tmp_path / "calicoctl"
    command = shlex.join([sys.executable, *PATIENT])
    program.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    program.chmod(0o755)
    script = (
        "source <(calicoctl completion bash)\n"
        "COMP_WORDS=(calicoctl get pools gree); COMP_CWORD=3\n"
        "_calicoctl_completion calicoctl; printf '%s\\n' \"${COMPREPLY[@]}\"\n"
    )
    done = subprocess.run(
        [bash, "-c", script],
        env={**os.environ, **etcd.environment(), "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("green\n", "")
