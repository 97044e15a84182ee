"""Kernel settings are those of the namespace the thread is in; errors name the setting."""

from __future__ import annotations

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
