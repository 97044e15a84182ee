"""`version` and the options that every command takes, on a real etcd."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from libcalico.clusterinfo import ensure_initialized
from libcalico.process import paths
from tests.calicoctl.conftest import Ctl
from tests.support.etcd import Etcd

TIER = "kind: Tier\napiVersion: projectcalico.org/v3\nmetadata: {name: t1}\nspec: {order: 1}\n"
CLIENT = "Client Version:    v3.33.1\nGit commit:        muslin-v0.1.0\n"


def test_client_alone_says_the_same_on_both_ways(ctl: Ctl) -> None:
    # The first is answered before the parser is imported, the second by the parser.
    assert ctl("version", "--client").out == CLIENT
    assert ctl("--log-level", "panic", "version", "--client").out == CLIENT


def node_starts(etcd: Etcd) -> None:
    """Only a node says which version the cluster runs."""

    async def start() -> None:
        async with etcd.connect() as store:
            await ensure_initialized(store, "k8s,bgp")

    asyncio.run(start())


def test_client_and_cluster(ctl: Ctl, etcd: Etcd) -> None:
    assert ctl("version").out == (
        f"{CLIENT}Cluster Version:   unknown\nCluster Type:      unknown\n"
    )
    node_starts(etcd)
    assert ctl("version").out.startswith(f"{CLIENT}Cluster Version:   v3.33.1\n")


@pytest.mark.parametrize("poll", ["soon", "-1s"])
def test_a_poll_that_is_no_duration(ctl: Ctl, poll: str) -> None:
    done = ctl("version", f"--poll={poll}")
    assert (done.code, done.out) == (1, "")
    assert f"--poll: '{poll}' is not valid" in done.err


@pytest.fixture
def polling(etcd: Etcd) -> Iterator[subprocess.Popen[str]]:
    """`version --poll 50ms` at work."""
    with subprocess.Popen(
        [sys.executable, "-m", "calicoctl.main", "version", "--poll", "50ms"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **etcd.environment(), "PYTHONUNBUFFERED": "1"},
    ) as process:
        yield process
        process.terminate()


def test_poll_shows_only_what_changed(etcd: Etcd, polling: subprocess.Popen[str]) -> None:
    assert polling.stdout is not None
    first = [polling.stdout.readline() for _ in range(4)]
    assert first[2:] == ["Cluster Version:   unknown\n", "Cluster Type:      unknown\n"]
    node_starts(etcd)
    assert polling.stdout.readline() == "Cluster Version:   v3.33.1\n"


@pytest.mark.parametrize(
    "where", [("--context", "prod", "get", "tiers"), ("get", "tiers", "--context", "prod")]
)
def test_a_kubeconfig_context_is_refused_where_there_is_none(
    ctl: Ctl, where: tuple[str, ...]
) -> None:
    done = ctl(*where)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("--context prod: the datastore is etcdv3, which has no kubeconfig")


def test_log_levels_before_and_behind_the_command(ctl: Ctl) -> None:
    for where in (("-l", "Error", "get", "tiers"), ("get", "tiers", "--log-level", "warn")):
        assert ctl(*where).code == 0
    done = ctl("get", "tiers", "-l", "loud")
    assert (done.code, done.out) == (1, "")
    assert "'loud' is none of panic, fatal, error" in done.err


def test_debug_messages_go_to_stderr(etcd: Etcd) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "calicoctl.main", "-l", "debug", "get", "tiers"],
        capture_output=True,
        text=True,
        env={**os.environ, **etcd.environment()},
        check=True,
    )
    assert "etcd is asked without gRPC" in done.stderr
    assert done.stdout.startswith("NAME")


@pytest.mark.promise("M-168")
def test_the_default_file_and_the_option(
    ctl: Ctl, etcd: Etcd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata:\nspec:\n"
        f"  datastoreType: etcdv3\n  etcdEndpoints: {etcd.endpoint}\n"
    )
    for name in etcd.environment():
        monkeypatch.delenv(name)
    file = tmp_path / "mine.cfg"
    file.write_text(text)
    for option in (("-c", str(file)), (f"--config={file}",)):
        assert ctl("apply", "-f", "-", *option, stdin=TIER).code == 0
        assert "t1" in ctl("get", "tiers", *option).out
        assert "t1" in ctl(*option, "get", "tiers").out
    nowhere = ctl("-c", str(file), "get", "tiers", "-c", str(tmp_path / "none.cfg"))
    assert nowhere.err.startswith("Error reading config file: ")  # the nearer one counts
    assert str(paths.CALICOCTL_CONFIG) != "/etc/calico/calicoctl.cfg"  # the fixture's stand-in
    default = tmp_path / "calicoctl.cfg"
    default.write_text(text)
    monkeypatch.setattr(paths, "CALICOCTL_CONFIG", default)
    assert "t1" in ctl("get", "tiers").out
    monkeypatch.setenv("ETCD_ENDPOINTS", "http://127.0.0.1:1")
    done = ctl("get", "tiers")
    assert "t1" in done.out
    assert done.err == (
        f"{default} exists, so the environment is not asked: ignored are ETCD_ENDPOINTS\n"
    )


def test_the_version_names_the_product(ctl: Ctl) -> None:
    assert ctl("--version").out == "calicoctl Muslin v0.1.0 (Calico v3.33.1)\n"


def test_the_default_path_is_calicos() -> None:
    assert str(paths.CALICOCTL_CONFIG) == "/etc/calico/calicoctl.cfg"


def test_a_secret_in_the_environment_is_told_about(
    ctl: Ctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETCD_PASSWORD", "hunter2hunter2")
    done = ctl("get", "tiers")
    assert "ETCD_PASSWORD is a secret in an environment variable" in done.err
    assert "hunter2" not in done.out + done.err
