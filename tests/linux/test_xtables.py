"""What the kernel says that it has of xtables and of IP sets."""

from __future__ import annotations

import errno

import pytest

from linux import ipset
from linux.errors import KernelError
from linux.xtables import has_match
from tests.support.netns import network_namespace


@pytest.mark.parametrize(
    ("name", "revision", "there"),
    [("set", 4, True), ("comment", 0, True), ("set", 99, False), ("of-no-kernel", 0, False)],
)
def test_matches_of_this_kernel(name: str, revision: int, there: bool) -> None:
    assert has_match(name, revision) is there


@pytest.mark.parametrize(("number", "there"), [(errno.EINVAL, False), (errno.EPERM, None)])
def test_a_kernel_without_ip_sets(
    monkeypatch: pytest.MonkeyPatch, number: int, there: bool | None
) -> None:
    with network_namespace("xt") as space:
        assert space.call(ipset.has_ipsets)

    def refuse(_: ipset.IPSets) -> list[str]:
        raise KernelError(number, "list IP sets", "")

    monkeypatch.setattr(ipset.IPSets, "names", refuse)
    if there is None:
        with pytest.raises(KernelError):
            ipset.has_ipsets()
    else:
        assert ipset.has_ipsets() is there
