"""The installer killed before each of its steps: nothing half, and the next run mends all.

A step is a call that changes a directory or a file. A child is forked for each one, which gets
SIGKILL there; the parent judges what a runtime would have seen, then installs again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

import msgspec
import pytest

from cni.install.files import UNFINISHED
from tests.cni.executable import FULL_SIZE, plugin
from tests.cni.installer import FIRST_GENERATION, LIST, PEM, Host

STEPS = ("open", "rename", "unlink", "fchmod", "fsync", "mkdir", "rmdir")
SPOKEN = """#!/bin/sh
echo '{"cniVersion":"1.0.0","supportedVersions":["0.3.1","0.4.0","1.0.0"]}'
"""


class Half:
    """A file that has a step between the halves of what is written."""

    def __init__(self, file: IO[bytes], step: Callable[[str], None]) -> None:
        self._file, self._step = file, step

    def __enter__(self) -> Half:
        return self

    def __exit__(self, *reason: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, content: bytes) -> None:
        self._file.write(content[: len(content) // 2])
        self._file.flush()
        self._step("write half")
        self._file.write(content[len(content) // 2 :])


def child(action: Callable[[], object], die_at: int | None) -> list[str]:
    """Run `action` in a forked child; returns its steps. With `die_at` it is killed there."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            mine(tell, die_at)
            action()
            status = 0
        finally:
            os._exit(status)
    os.close(tell)
    with os.fdopen(told) as file:
        steps = file.read().splitlines()
    _, ended = os.waitpid(pid, 0)
    if die_at is None:
        assert ended == 0
    else:
        assert os.WTERMSIG(ended) == signal.SIGKILL, (die_at, steps)
    return steps


def mine(tell: int, die_at: int | None) -> None:
    """Make every step of this process tell itself, and one deadly."""
    count = 0

    def step(label: str) -> None:
        nonlocal count
        os.write(tell, f"{label}\n".encode())
        if count == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1

    def deadly(name: str) -> Callable[..., Any]:
        real: Callable[..., Any] = getattr(os, name)

        def call(*arguments: Any, **named: Any) -> Any:
            reading = name == "open" and not arguments[1] & os.O_CREAT
            if not reading:
                # A descriptor's number depends on what else this process has open.
                what = "" if isinstance(arguments[0], int) else Path(arguments[0]).name
                step(f"{name} {re.sub('[0-9a-f]{16}', '*', what)}".strip())
            return real(*arguments, **named)

        return call

    for name in STEPS:
        setattr(os, name, deadly(name))
    fdopen = os.fdopen
    os.fdopen = lambda fd, how="r": (  # type: ignore[assignment]
        Half(cast("IO[bytes]", fdopen(fd, how)), step) if how == "wb" else fdopen(fd, how)
    )


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A node of the first generation, about to be upgraded to a list, with credentials asked."""
    made = Host(tmp_path)
    for name in ("portmap", "host-local"):
        (made.image / name).write_text(SPOKEN)
        (made.bin / name).write_text("an older one")
        (made.bin / name).chmod(0o755)
    for name, text in PEM.items():
        (made.secrets / name).write_text(text)
    (made.bin / "calico").write_bytes(plugin().read_bytes() + b"older")
    (made.bin / "calico").chmod(0o4755)
    (made.net / "10-calico.conf").write_text('{"name": "x", "type": "calico"}')
    return made


def template() -> str:
    calico, portmap = LIST["plugins"]
    first = calico | {
        "policy": {"type": "k8s", "k8s_auth_token": "__SERVICEACCOUNT_TOKEN__"},
        "etcd_key_file": "__ETCD_KEY_FILE__",
        "etcd_cert_file": "__ETCD_CERT_FILE__",
        "etcd_ca_cert_file": "__ETCD_CA_CERT_FILE__",
    }
    return json.dumps(LIST | {"plugins": [first, portmap]})


def some(steps: list[str]) -> list[tuple[int, str]]:
    """Every step at full size; in the fast tier each kind of step once, and the last ones."""
    numbered = list(enumerate(steps))
    if FULL_SIZE:
        return numbered

    firsts = {re.sub(r"etcd-\w+|calico-ipam|portmap|host-local", "?", s): n for n, s in numbered}
    return [numbered[n] for n in sorted({*firsts.values(), len(steps) - 1, len(steps) - 2})]


def whole(host: Host, before: dict[str, Any], after: dict[str, Any]) -> None:
    """What a runtime sees now: every file old or new, never between, in the right order."""
    found = host.tree()
    for name, state in found.items():
        if UNFINISHED.fullmatch(Path(name).name):
            assert not name.endswith((".conf", ".conflist", ".json"))
            continue
        assert state in (before.get(name), after.get(name)), name
    assert host.visible(), "no configuration at all"
    for name in host.visible():
        msgspec.json.decode((host.net / name).read_bytes())
    if "etc/cni/net.d/10-calico.conflist" in found:
        earlier = [name for name in after if not name.endswith(".conflist")]
        assert {name: found[name] for name in earlier} == {name: after[name] for name in earlier}


@pytest.mark.promise("M-21")
def test_killed_at_every_step_of_an_upgrade(host: Host, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    shutil.copytree(host.host, saved, symlinks=True)
    before = host.tree()

    def again() -> None:
        shutil.rmtree(host.host)
        shutil.copytree(saved, host.host, symlinks=True)

    def action() -> None:
        host.run(CNI_NETWORK_CONFIG=template())

    steps = child(action, None)
    after = host.tree()
    assert set(after) == {
        *(f"opt/cni/bin/{name}" for name in ("calico", "calico-ipam", "portmap", "host-local")),
        *(f"etc/cni/net.d/calico-tls/{name}" for name in PEM),
        "etc/cni/net.d/calico-kubeconfig",
        "etc/cni/net.d/10-calico.conflist",
    }
    labels = {step.split()[0] for step in steps}
    assert labels == {"open", "write", "fchmod", "fsync", "rename", "unlink", "mkdir"}
    assert steps[-2].startswith("unlink 10-calico.conf"), "what is replaced goes last"
    assert len(steps) > 50
    for number, label in some(steps):
        again()
        assert child(action, number)[-1] == label
        whole(host, before, after)
        action()
        assert host.tree() == after, label


def test_killed_at_every_step_of_an_uninstallation(host: Host) -> None:
    (host.net / "10-calico.conf").unlink()
    host.run(CNI_NETWORK_CONFIG=template())
    for folder in (host.bin, host.net):
        (folder / "of-somebody-else").write_text("kept")
    kept = {name for name in host.tree() if "calico" not in name}

    def action() -> None:
        host.run("--uninstall")

    steps = child(action, None)
    assert steps[0] == "unlink 10-calico.conf", "the configuration first"
    assert set(host.tree()) == kept
    assert not (host.net / "calico-tls").exists()
    for number, _ in some(steps):
        host.run(CNI_NETWORK_CONFIG=template())
        child(action, number)
        if host.visible():
            assert (host.bin / "calico").exists(), "a configuration without its executable"
        action()
        assert set(host.tree()) == kept


def test_two_installers_at_once_and_what_a_dead_one_left(host: Host) -> None:
    """Two containers have equal process ids: they take turns, and neither trips over the other."""
    left = host.net / ".10-calico.conflist.0123456789abcdef.new"
    left.write_text('{"half')

    def action() -> None:
        for _ in range(5):
            host.run(CNI_NETWORK_CONFIG=template())

    pids = []
    for text in (template(), FIRST_GENERATION):
        if (pid := os.fork()) == 0:
            status = 1
            try:
                for _ in range(10):
                    host.run(CNI_NETWORK_CONFIG=text)
                status = 0
            finally:
                os._exit(status)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0]
    assert not left.exists()
    assert len(host.visible()) == 1
    action()
    assert host.visible() == ["10-calico.conflist"]
    assert not [name for name in host.tree() if UNFINISHED.fullmatch(Path(name).name)]
