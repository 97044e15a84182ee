"""Kernel settings are those of the namespace the thread is in; errors name the setting."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from linux import netns, sysctl
from linux.errors import KernelError
from tests.support.netns import network_namespace

FORWARD = "net/ipv4/ip_forward"


def test_settings_belong_to_the_namespace() -> None:
    with network_namespace("sysctl") as space:
        before = sysctl.get(FORWARD)
        netns.run_in(space.fd, lambda: sysctl.set(FORWARD, 1))
        assert space.run("cat", "/proc/sys/net/ipv4/ip_forward").strip() == "1"
        assert netns.run_in(space.fd, lambda: sysctl.ensure(FORWARD, 1)) is False
        assert netns.run_in(space.fd, lambda: sysctl.ensure(FORWARD, 0)) is True
        assert sysctl.get(FORWARD) == before


def test_errors_name_the_setting() -> None:
    with pytest.raises(KernelError, match="read sysctl net/ipv4/conf/none/rp_filter"):
        sysctl.get("net/ipv4/conf/none/rp_filter")
    assert sysctl.try_get("net/ipv4/conf/none/rp_filter") is None
    error = sysctl.try_set("net/ipv4/conf/none/rp_filter", 1)
    assert error is not None
    assert "No such file" in str(error)
    with network_namespace("sysctl2") as space, space.entered():
        assert sysctl.try_set(FORWARD, 1) is None
        with pytest.raises(KernelError, match="EINVAL"):
            sysctl.set(FORWARD, "often")


@pytest.mark.parametrize("name", ["/net/x", "net/../../etc/passwd", "net//x", ""])
def test_names_that_leave_the_tree_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="sysctl name"):
        sysctl.get(name)


UNPRIVILEGED = """
import os, subprocess, sys
from linux import sysctl
mounted = sys.argv[1] + "/"
for command in (
    ["mount", "--bind", "/proc/sys/net", mounted + "net"],
    ["mount", "--bind", "/proc/sys", "/proc/sys"],
    ["mount", "-o", "remount,bind,ro", "/proc/sys"],
):
    subprocess.run(command, check=True)
print(sysctl.try_set("net/ipv4/ip_forward", 1))
sysctl._NET_ROOT = sysctl._net_root(mounted)
print(sysctl.ensure("net/ipv4/ip_forward", 1), sysctl.get("net/ipv4/ip_forward"))
print(open("/proc/sys/net/ipv4/ip_forward").read().strip(), sysctl.get("kernel/ostype"))
"""


def test_a_container_writes_where_its_manifest_mounts_the_net_settings(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    done = subprocess.run(
        ["unshare", "--mount", "--net", sys.executable, "-c", UNPRIVILEGED, str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
    )
    refused, written, seen = done.stdout.splitlines()
    assert "EROFS" in refused or "Read-only" in refused
    assert written == "True 1"
    assert seen == "1 Linux"
