"""Bandwidth of workloads' links, on a kernel: what is written, left alone, removed and refused."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from felix.calc.endpoints import Endpoint
from felix.config.parameters import Config
from felix.dataplane.devices.shaping import Shaping, device_of, token_bucket
from felix.dataplane.devices.view import KernelView
from felix.dataplane.devices.work import LinkWork
from libcalico.conversion.traffic_limits import UNLIMITED, Bucket, TrafficLimits
from libcalico.model import ResourceKey
from linux import links, traffic_control
from linux.netlink import Socket
from tests.support.netns import Namespace, network_namespace

LINK = "cali1"
BOTH = TrafficLimits(Bucket(1_000_000, 50_000), Bucket(2_000_000, 60_000, 4_000_000))


@pytest.fixture
def space() -> Iterator[Namespace]:
    with network_namespace("shape") as space:
        space.run("ip", "link", "add", LINK, "type", "veth", "peer", "name", "peer")
        yield space


@pytest.fixture
def sock(space: Namespace) -> Iterator[Socket]:
    made = space.call(Socket)
    yield made
    made.close()


def commit(sock: Socket, shaping: Shaping, *asked: TrafficLimits) -> None:
    """A turn about all: one endpoint of LINK with these limits, or none."""
    known = {link.index: link for link in links.dump(sock)}
    by_name = {link.name: link for link in known.values()}
    view = cast(KernelView, SimpleNamespace(links=known, link_named=by_name.get))
    endpoints = [
        Endpoint(ResourceKey("WorkloadEndpoint", "e", "n"), "c", LINK, (), "", (), "k8s", "w", "e",
                 limits=limits)
        for limits in asked
    ]  # fmt: skip
    shaping.commit(LinkWork(sock, view, Config(), endpoints=endpoints), whole=True)


def buckets(space: Namespace) -> str:
    return "\n".join(
        line for line in space.run("tc", "qdisc", "show").splitlines() if "tbf" in line
    )


def test_without_limits_nothing_is_asked_of_the_kernel(space: Namespace) -> None:
    with space.entered():
        deaf = cast(Socket, None)
        view = SimpleNamespace(links={}, link_named=lambda name: SimpleNamespace(
            index=2, name=name, queue="noqueue", mtu=1500))  # fmt: skip
        endpoint = Endpoint(
            ResourceKey("WorkloadEndpoint", "e", "n"), "c", LINK, (), "", (), "k8s", "w", "e"
        )
        work = LinkWork(deaf, cast(KernelView, view), Config(), endpoints=[endpoint])
        assert Shaping().commit(work, whole=True) == ()


def test_a_new_felix_finds_its_own_right(space: Namespace, sock: Socket) -> None:
    first, second = Shaping(), Shaping()
    commit(sock, first, BOTH)
    assert first.problems == {}
    assert {line.split()[4] for line in buckets(space).splitlines()} == {LINK, device_of(LINK)}
    commit(sock, second, BOTH)
    assert (second.writes, second.problems) == (0, {})
    commit(sock, second, UNLIMITED)
    assert buckets(space) == ""
    assert device_of(LINK) not in space.run("ip", "link")


def test_what_changed_while_felix_was_away_goes(space: Namespace, sock: Socket) -> None:
    commit(sock, Shaping(), BOTH)
    commit(sock, Shaping(), UNLIMITED)
    assert buckets(space) == ""
    assert device_of(LINK) not in space.run("ip", "link")
    commit(sock, Shaping(), BOTH)
    space.run("ip", "link", "del", LINK)
    commit(sock, Shaping())
    assert device_of(LINK) not in space.run("ip", "link")


def test_another_programs_bucket_stays_until_a_limit_is_asked_for(
    space: Namespace, sock: Socket
) -> None:
    theirs = "root handle 1: tbf rate 1mbit burst 9k latency 25ms"
    space.run("tc", "qdisc", "add", "dev", LINK, *theirs.split())
    space.run("tc", "qdisc", "add", "dev", LINK, "ingress")
    space.run("ip", "link", "add", "bwp12", "type", "ifb")
    shaping = Shaping()
    commit(sock, shaping, UNLIMITED)
    assert "tbf 1:" in buckets(space)
    assert "bwp12" in space.run("ip", "link")
    commit(sock, shaping, BOTH)
    assert shaping.problems == {}
    assert "tbf 1:" not in buckets(space)
    assert device_of(LINK) in space.run("tc", "filter", "show", "dev", LINK, "ingress")


def test_what_is_lost_is_made_again(space: Namespace, sock: Socket) -> None:
    shaping = Shaping()
    commit(sock, shaping, BOTH)
    space.run("tc", "qdisc", "del", "dev", LINK, "root")
    space.run("ip", "link", "del", device_of(LINK))
    commit(sock, shaping, BOTH)
    assert {line.split()[4] for line in buckets(space).splitlines()} == {LINK, device_of(LINK)}


def test_what_the_kernel_refuses_is_a_problem_until_it_is_taken(
    space: Namespace, sock: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    shaping = Shaping()
    refused(sock, shaping, monkeypatch)
    commit(sock, shaping, BOTH)
    assert shaping.problems == {}
    assert LINK in buckets(space)


def refused(sock: Socket, shaping: Shaping, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn in which the kernel refuses the bucket."""
    zero = traffic_control.TokenBucket(1, 0, 0)
    with monkeypatch.context() as patched:
        make = traffic_control.bucket
        patched.setattr(traffic_control, "bucket", lambda link, _wanted: make(link, zero))
        commit(sock, shaping, BOTH)
    assert "bandwidth is not limited" in shaping.problems[LINK]


@pytest.mark.usefixtures("space")
def test_a_problem_goes_with_its_endpoint_though_the_link_stays(
    sock: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    shaping = Shaping()
    refused(sock, shaping, monkeypatch)
    commit(sock, shaping)
    assert shaping.problems == {}


def test_a_bucket_holds_the_largest_frame() -> None:
    got = token_bucket(Bucket(1000, 1, 2000, 0), 1514)
    assert got.burst == traffic_control.ticks(1514, 1000)
    assert got.least_burst == traffic_control.ticks(1514, 2000)
    assert got.limit >= 1514
