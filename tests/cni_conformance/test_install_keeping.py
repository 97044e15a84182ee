"""INS-08 to INS-10: credentials that stay valid, and the moment of the configuration."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cni.install import keeping
from libcalico.kubernetes.access import Kubeconfig
from tests.cni.installer import FIRST_GENERATION, PEM, TEMPLATE, TOKEN, Host, mode
from tests.support.etcd import Etcd
from tests.support.patience import HANG, wait_for


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.cni("INS-08")
@pytest.mark.promise("M-162")
def test_the_kubeconfig(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    host.run(CNI_NETWORK_CONFIG=TEMPLATE, KUBERNETES_SERVICE_HOST="fd00::1")
    path = host.net / "calico-kubeconfig"
    assert mode(path) == 0o600
    access = Kubeconfig(str(path))()
    assert (access.server, access.ca, access.token) == ("https://[fd00::1]:443", b"the CA", TOKEN)
    tree = yaml.safe_load(path.read_text())
    assert tree["current-context"] == "calico-context"
    assert tree["clusters"][0]["name"] == "local"
    assert tree["users"][0]["name"] == "calico"
    host.run(CNI_NETWORK_CONFIG=TEMPLATE, SKIP_TLS_VERIFY="true")
    assert Kubeconfig(str(path))().insecure
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any("/etc/cni/net.d/calico-kubeconfig" in text for text in said), "it is said aloud"
    assert TOKEN not in caplog.text


@pytest.mark.cni("INS-09")
@pytest.mark.promise("F-19")
@pytest.mark.promise("PAIN-31")
@pytest.mark.promise("M-208")
@pytest.mark.promise("M-162")
def test_the_sidecar_renews_and_the_init_container_ends(host: Host) -> None:
    """Under the name of the first generation's manifest, with its variables and mounts."""
    for name, text in PEM.items():
        (host.secrets / name).write_text(text)
    script = str(Path(__file__).parents[2] / "manifests/install-cni.sh")
    kubeconfig = host.net / "calico-kubeconfig"
    with host.sidecar(script, CNI_NETWORK_CONFIG=FIRST_GENERATION) as process:
        wait_for(lambda: host.visible() == ["10-calico.conf"])
        assert (host.bin / "calico").exists()
        inode = (host.net / "calico-tls/etcd-cert").stat().st_ino
        # As the kubelet does it: a link is swapped.
        (host.account / "fresh").write_text("a-renewed-token")
        (host.account / "link").symlink_to("fresh")
        (host.account / "link").rename(host.account / "token")
        (host.secrets / "etcd-key").write_text("a renewed key")
        wait_for(lambda: "a-renewed-token" in kubeconfig.read_text())
        wait_for(lambda: (host.net / "calico-tls/etcd-key").read_text() == "a renewed key")
        wait_for(lambda: host.written("10-calico.conf")["policy"]["k8s_auth_token"] != TOKEN)
        assert (host.net / "calico-tls/etcd-cert").stat().st_ino == inode, "what is right stays"
        process.terminate()
        assert process.wait(HANG) == 0
        assert process.stderr
        told = process.stderr.read()
    assert host.visible() == ["10-calico.conf"], "nobody removes it on shutdown"
    assert TOKEN not in told
    assert "a-renewed-token" not in told
    before = host.tree()
    program = [script, *host.arguments()]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = host.environ(CNI_NETWORK_CONFIG=FIRST_GENERATION, SLEEP="false", PATH=path)
    done = subprocess.run(program, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert host.tree() == before


@pytest.mark.cni("INS-10")
def test_the_daemon_writes_the_configuration_once_its_socket_answers(
    host: Host, tmp_path: Path, etcd: Etcd
) -> None:
    """The real `calico-cni`: killed, stopped, started again; a node once ready stays ready."""
    host.run("--binaries-only")
    assert not host.visible()
    log = (tmp_path / "log").open("w")

    def start(**more: str) -> subprocess.Popen[bytes]:
        program = [sys.executable, "-m", "tests.cni_conformance.daemon", str(tmp_path)]
        environ = {**os.environ, **etcd.environment(), **host.environ(**more), "NODENAME": "node1"}
        return subprocess.Popen(program, env=environ, stdout=log, stderr=log)

    socket, conflist = tmp_path / "private/cni.sock", host.net / "10-calico.conflist"

    def serving() -> bool:
        return asyncio.run(keeping.answers(socket))

    process = start()
    try:
        wait_for(serving)
        assert not host.visible(), "not asked to"
        process.kill()
        process.wait()
        process = start(CALICO_CNI_WRITE_CONFIG="true", CNI_NETWORK_CONFIG=TEMPLATE)
        wait_for(conflist.exists)
        assert serving(), "first the socket, then the configuration"
        assert host.written()["name"] == "k8s-pod-network"
        assert (host.net / "calico-kubeconfig").exists()
        process.terminate()
        process.wait(HANG)
        assert conflist.exists(), "removed by nobody on shutdown"
        conflist.unlink()
        stopped = {"CALICO_CNI_WRITE_CONFIG": "true", "CNI_NETWORK_CONFIG": "{__NONSENSE__}"}
        process = start(**stopped)
        wait_for(serving)
        wait_for(lambda: "__NONSENSE__: no such placeholder" in (tmp_path / "log").read_text())
        assert serving(), "a bad template stops no running pod"
        assert not host.visible()
    finally:
        process.kill()
        process.wait()
        log.close()


@pytest.mark.cni("INS-10")
def test_a_socket_that_does_not_greet_is_no_daemon(tmp_path: Path) -> None:
    assert not asyncio.run(keeping.answers(tmp_path / "none"))
