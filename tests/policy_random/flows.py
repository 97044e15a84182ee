"""Which packets are tried: every kind between every two pods, or a random sample."""

from __future__ import annotations

from ipaddress import ip_address
from itertools import permutations
from random import Random

from tests.policy_random.generator import (
    RAW_PROTOCOL,
    SOURCE_PORTS,
    TCP_PORTS,
    UDP_PORTS,
    Pod,
)
from tests.policy_random.oracle import Flow

ICMP, ICMPV6, TCP, UDP = 1, 58, 6, 17


def kinds(version: int) -> list[dict[str, int]]:
    """The kinds of packets of one family."""
    found = [
        {"protocol": protocol, "source_port": source, "destination_port": destination}
        for protocol, ports in ((TCP, TCP_PORTS), (UDP, UDP_PORTS))
        for destination in ports
        for source in SOURCE_PORTS
    ]
    found.append({"protocol": RAW_PROTOCOL})
    # Echo requests with two codes; of IPv4 also a timestamp request, which Linux answers.
    types = [(8, 0), (8, 3), (13, 0)] if version == 4 else [(128, 0), (128, 3)]
    icmp = ICMP if version == 4 else ICMPV6
    found += [{"protocol": icmp, "icmp_type": kind, "icmp_code": code} for kind, code in types]
    return found


def every(pods: list[Pod], versions: tuple[int, ...] = (4, 6)) -> list[Flow]:
    """All kinds between all ordered pairs of pods."""
    found = []
    for version in versions:
        able = [p for p in pods if any(ip_address(a).version == version for a in p.addresses)]
        found += [
            Flow(one.title, other.title, version, **kind)
            for one, other in permutations(able, 2)
            for kind in kinds(version)
        ]
    return found


def sample(pods: list[Pod], count: int, seed: object) -> list[Flow]:
    """Some of them, reproducibly, with as many of ICMP as of TCP and UDP."""
    random = Random(f"flows/{seed}")
    found = []
    for _ in range(count):
        able = kinds(version := random.choice((4, 6)))
        icmp = ICMP if version == 4 else ICMPV6
        (protocol,) = random.choices((TCP, UDP, icmp, RAW_PROTOCOL), (3, 3, 3, 1))
        kind = random.choice([kind for kind in able if kind["protocol"] == protocol])
        one, other = random.sample(pods, 2)
        found.append(Flow(one.title, other.title, version, **kind))
    return found
