"""A token in the network configuration is in no log, answer, process list or archive.

CVE-2024-33522 and older: tokens of the CNI configuration in the plugin's debug log. The canaries
stand in every member that holds a secret; the calls succeed, fail in each way, and are run by
executable and twin, with the daemon at debug level, away, and without its datastore.
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from calicoctl.main import run
from calicoctl.node import program
from libcalico.process import paths
from tests.cni.executable import BUILDS, Done
from tests.cni.supervised import Supervisor, supervised
from tests.cni.world import FelixPeer, World, changed, node_world, pod_namespace, result_of
from tests.support.patience import until

CANARY = "c4nary-t0ken-of-the-configuration"
SPELLINGS = (CANARY, base64.b64encode(CANARY.encode()).decode().rstrip("="))
SECRETS: dict[str, Any] = {
    "log_level": "debug",
    "etcd_password": CANARY,
    "args": {"cni": {"token": CANARY}},
    "policy": {"type": "k8s", "password": CANARY},
}
AWAY = {"policy": {"type": "k8s", "k8s_auth_token": CANARY, "k8s_api_root": "https://127.0.0.1:1"}}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with node_world(tmp_path) as world:
        asyncio.run(prepare(world))
        yield world


async def prepare(node: World) -> None:
    async with node.etcd.connect() as store:
        await node.prepare(store)


@pytest.fixture
def daemon(node: World) -> Iterator[Supervisor]:
    settings = changed(node.settings, datastore_seconds=2.0, release_seconds=1.0, check_seconds=1.0)
    # The one etcd that fails is killed: it carries nothing out late.
    soon = {"LATE_SECONDS": "1"}
    with supervised(settings, node.etcd.endpoint, node.folder / "cni.log", soon) as found:
        yield found


class Ear:
    """Every answer, to look for the canary in the end."""

    def __init__(self) -> None:
        self.codes: set[int] = set()

    def hear(self, done: Done) -> Done:
        """One call's answer."""
        said = done.stdout.decode() + done.stderr
        assert not any(spelling in said for spelling in SPELLINGS), said
        self.codes.add(done.error["code"] if done.status else 0)
        return done


@pytest.mark.promise("ADV-4", "M-160")
@pytest.mark.asyncio
async def test_no_canary_anywhere(
    node: World,
    daemon: Supervisor,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ear = Ear()
    for build in BUILDS:
        node.build = build
        with pod_namespace() as pod:
            result = result_of(ear.hear(await node.add(pod, config=SECRETS)))
            ear.hear(await node.check(pod, result, config=dict(SECRETS)))
            ear.hear(await node.delete(pod, config=SECRETS))
            for damage in (
                {"mtu": f"{CANARY}"},
                {"ipam": {"type": "calico-ipam", "ipv4_pools": CANARY}},
                {"cniVersion": CANARY},
                {"name": "no such name/" + CANARY},
                {"prevResult": {"cniVersion": "1.0.0", "ips": CANARY}},
            ):
                # Not the secret itself where it does not belong, but beside what is wrong.
                wrong = json.loads(json.dumps(damage).replace(CANARY, "wrong"))
                ear.hear(await node.add(pod, config=SECRETS | wrong))
                ear.hear(await node.delete(pod, config=SECRETS | wrong))
            ear.hear(await node.add(pod, config=SECRETS | AWAY))
            ear.hear(await node.delete(pod, config=SECRETS | AWAY))
            stdin = json.dumps(SECRETS).encode()
            for cut in (b"{", stdin[: stdin.index(CANARY.encode()) + 20], stdin[:-1], b"x" + stdin):
                ear.hear(raw(node, cut))
    async with FelixPeer(node.settings.felix_socket) as felix:
        # While calls are in progress nobody's arguments show it, nor anyone else's environment.
        felix.hold = True
        with pod_namespace() as pod:
            config = SECRETS | {"policy_setup_timeout_seconds": 3}
            adding = asyncio.create_task(node.add(pod, config=config))
            await asyncio.sleep(0.5)
            listing = node.space.run("ps", "-eww", "-o", "pid,args")
            assert "calico" in listing
            assert CANARY not in listing
            environ = Path(f"/proc/{daemon.pid}/environ").read_text()
            assert CANARY not in environ
            ear.hear(await adding)
            ear.hear(await node.delete(pod, config=config))
    with pod_namespace() as pod:
        result_of(ear.hear(await node.add(pod, config=SECRETS)))
        node.etcd.kill()
        ear.hear(await node.add(pod, "other", config=SECRETS))
        ear.hear(await node.delete(pod, config=SECRETS))
        assert list(node.settings.pending.iterdir())
        node.etcd.start()
        await until(lambda: not list(node.settings.pending.glob("*.json")))
    assert ear.codes >= {0, 6, 7, 11}, ear.codes

    log = (node.folder / "cni.log").read_text()
    assert "DEBUG" in log
    assert "attachment added" in log
    everything = node.etcd.ctl("get", "--prefix", "").decode(errors="replace")
    status = "".join(path.read_text() for path in node.settings.status.iterdir())
    for spelling in SPELLINGS:
        assert spelling not in log
        assert spelling not in everything
        assert spelling not in status
    archived(node, monkeypatch)
    said = capsys.readouterr()
    assert CANARY not in said.out + said.err


def raw(node: World, stdin: bytes) -> Done:
    """A call with input that is no JSON any more."""
    env = {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "c0ffee",
        "CNI_NETNS": "/proc/self/ns/net",
        "CNI_IFNAME": "eth0",
        "CNI_CALICO_SOCKET": str(node.settings.socket),
    }
    done = subprocess.run(
        [node.build.plugin("calico")], env=env, input=stdin, capture_output=True, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr.decode())


def archived(node: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """`calicoctl node diags` of a node with its configuration, queue and log in their places."""
    lib, net = node.folder / "lib", node.folder / "net.d"
    (lib / "cni" / "pending").mkdir(parents=True)
    net.mkdir()
    conflist = {"name": "k8s-pod-network", "plugins": [{"type": "calico", **SECRETS, **AWAY}]}
    (net / "10-calico.conflist").write_text(json.dumps(conflist))
    (net / "calico-kubeconfig").write_text(f"users:\n- user:\n    token: {CANARY}\n")
    record = {"version": 1, "argv0": "calico", "env": {}, "stdin": json.dumps(SECRETS), "time": 1}
    (lib / "cni" / "pending" / ("0" * 64 + ".json")).write_text(json.dumps(record))
    for name, folder in (("CNI_NET", net), ("LIB", lib), ("STATUS", node.settings.status)):
        monkeypatch.setattr(paths, name, folder)
    monkeypatch.setattr(paths, "NODENAME", node.settings.nodename_file)
    monkeypatch.setattr(paths, "CONFIG", node.folder / "none")
    monkeypatch.setattr(program, "find", lambda: None)
    for name, value in node.etcd.environment().items():
        monkeypatch.setenv(name, value)
    (node.folder / "log").mkdir()
    log = (node.folder / "cni.log").read_text()
    (node.folder / "log" / "cni.log").write_text(f"{log}\nsomebody else wrote {CANARY}\n")
    target = node.folder / "diags.tar.gz"
    words = ["node", "diags", "--log-dir", f"{node.folder}/log", "-o", str(target)]
    with ThreadPoolExecutor(1) as pool:  # the command has an event loop of its own
        assert pool.submit(run, words).result() == 0
    with tarfile.open(target) as tar:
        files = {
            name: tar.extractfile(name).read().decode()  # type: ignore[union-attr]
            for name in tar.getnames()
        }
    assert any(name.endswith("10-calico.conflist") for name in files)
    for name, text in files.items():
        for spelling in SPELLINGS:
            assert spelling not in text, name
            assert spelling not in name
