"""Queueing disciplines as the kernel has them, read by tc(8)."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from typing import Any

import pytest

from linux import links
from linux import traffic_control as tc
from linux.netlink import Socket
from tests.support.netns import Namespace, network_namespace

BUCKET = tc.TokenBucket(1_250_000, tc.ticks(60_000, 1_250_000), 300_000)
FAST = 15_000_000_000
"""Bytes a second, more than fit into 32 bits."""


@pytest.fixture
def space() -> Iterator[Namespace]:
    with network_namespace("tc") as space:
        space.run(*["ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1"])
        yield space


@pytest.fixture
def sock(space: Namespace) -> Iterator[Socket]:
    made = space.call(Socket)
    yield made
    made.close()


def queues(space: Namespace) -> dict[str, dict[str, Any]]:
    return {each["dev"]: each for each in json.loads(space.run("tc", "-j", "qdisc", "show"))}


def index(sock: Socket, name: str) -> int:
    link = links.get(sock, name)
    assert link is not None
    return link.index


@pytest.mark.parametrize(
    "bucket",
    [
        BUCKET,
        tc.TokenBucket(125, 0xFFFFFFFF, 1514),
        tc.TokenBucket(FAST, tc.ticks(1 << 29, FAST), 1 << 31, 2 * FAST, tc.ticks(1514, 2 * FAST)),
    ],
)
def test_a_bucket_is_read_back_as_it_was_written(
    space: Namespace, sock: Socket, bucket: tc.TokenBucket
) -> None:
    link = index(sock, "v0")
    sock.carry_out([tc.bucket(link, bucket)])
    (got,) = [each for each in tc.dump(sock) if each.link == link]
    assert got.ours
    assert got.bucket == bucket
    assert queues(space)["v0"]["options"]["rate"] == bucket.rate
    again = links.get(sock, "v0")
    assert again is not None
    assert again.queue == "tbf"
    sock.carry_out([tc.no_bucket(link)])
    assert sock.transact([tc.no_bucket(link)])[0].errno in (errno.ENOENT, errno.EINVAL)
    assert "tbf" not in str(queues(space))


def test_another_programs_bucket_is_not_ours_and_is_replaced(
    space: Namespace, sock: Socket
) -> None:
    space.run(
        *[
            "tc",
            "qdisc",
            "add",
            "dev",
            "v0",
            "root",
            "handle",
            "1:",
            "tbf",
            "rate",
            "1mbit",
            "burst",
            "9k",
            "latency",
            "25ms",
        ]
    )
    link = index(sock, "v0")
    (got,) = [each for each in tc.dump(sock) if each.link == link]
    assert (got.kind, got.ours) == ("tbf", False)
    assert got.bucket is not None
    assert got.bucket.rate == 125_000
    sock.carry_out([tc.bucket(link, BUCKET)])
    assert [each.bucket for each in tc.dump(sock) if each.link == link] == [BUCKET]


def test_what_a_link_receives_goes_through_another(space: Namespace, sock: Socket) -> None:
    sock.carry_out([links.create("bw0", "ifb", mtu=1500, up=True)])
    link, device = index(sock, "v0"), index(sock, "bw0")
    assert sock.transact([tc.no_detour(link)])[0].errno in (errno.ENOENT, errno.EINVAL)
    sock.carry_out(tc.detour(link, device))
    assert "Redirect to device bw0" in space.run(*["tc", "filter", "show", "dev", "v0", "ingress"])
    assert sock.transact(tc.detour(link, device))[0].errno == errno.EEXIST
    sock.carry_out([tc.no_detour(link)])
    assert "ingress" not in space.run(*["tc", "qdisc", "show", "dev", "v0"])
