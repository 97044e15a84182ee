"""LINK-1, LINK-2: a veth born across namespaces, its settings, its end; the whole of a pod's wire.

    host ns                      pod ns
[ cali0 ee:ee:.. ]-----------[ eth0 10.65.0.1/32 ]
  proxy ARP, /32 route          default via 169.254.1.1
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from ipaddress import ip_address, ip_interface, ip_network

import pytest

from linux import addresses, links, neighbours, netlink, routes, sysctl
from linux.errors import KernelError
from linux.netlink import Result, Socket
from linux.routes import NextHop, Route
from tests.support.netns import Namespace, network_namespace

MAC = "ee:ee:ee:ee:ee:ee"
GATEWAY = ip_address("169.254.1.1")


@pytest.fixture
def spaces() -> Iterator[tuple[Namespace, Namespace]]:
    with network_namespace("host") as host, network_namespace("pod") as pod, host.entered():
        yield host, pod


def _veth(name: str, pod: Namespace, mtu: int = 1400) -> bytes:
    return links.create_veth(
        name, mac=MAC, mtu=mtu, peer_name="eth0", peer_mac="0a:00:00:00:00:01",
        peer_netns_fd=pod.fd,
    )  # fmt: skip


def _ok(results: list[Result]) -> None:
    assert [result.error() for result in results if not result.ok] == []


def _wire(host: Socket, pod: Namespace, name: str, address: str) -> tuple[int, int]:
    made = links.made(host, _veth(name, pod), name)
    peer = made.peer_index
    with netlink.open_in_netns(pod.fd) as inside:
        _ok(
            inside.transact(
                [
                    links.set_up(peer),
                    addresses.add(peer, ip_interface(address)),
                    routes.add(Route(ip_network(f"{GATEWAY}/32"), (NextHop(None, peer),))),
                    routes.add(Route(ip_network("0.0.0.0/0"), (NextHop(GATEWAY, peer),))),
                    neighbours.replace(peer, GATEWAY, MAC),
                ]
            )
        )
    settings = {"forwarding": 1, "proxy_arp": 1, "rp_filter": 1, "route_localnet": 1}
    _ok(
        host.transact(
            [
                links.set_inet_conf(made.index, settings),
                links.set_proxy_delay(made.index, 0),
                routes.replace(Route(ip_network(address), (NextHop(None, made.index),))),
            ]
        )
    )
    return made.index, peer


def test_the_echo_tells_both_indexes(spaces: tuple[Namespace, Namespace]) -> None:
    host, pod = spaces
    pod.run("ip", "link", "add", "filler", "type", "bridge")
    with Socket() as sock:
        made = links.made(sock, _veth("cali0", pod), "cali0")
        assert made.index == int(host.run("cat", "/sys/class/net/cali0/ifindex"))
        with netlink.open_in_netns(pod.fd) as inside:
            peer = links.by_name(links.dump(inside))["eth0"]
            assert (peer.index, peer.peer_index) == (made.peer_index, made.index)
            assert made.index != made.peer_index
            assert (peer.mac, peer.mtu, peer.up, peer.kind) == (
                "0a:00:00:00:00:01", 1400, False, "veth",
            )  # fmt: skip
        link = links.get(sock, "cali0")
        assert link is not None
        assert (link.mac, link.mtu, link.up, link.carrier) == (MAC, 1400, True, False)
        assert links.get(sock, "none") is None
        assert links.get(sock, 4711) is None


def test_a_name_that_is_taken_leaves_nothing_behind(spaces: tuple[Namespace, Namespace]) -> None:
    _, pod = spaces
    with Socket() as sock, netlink.open_in_netns(pod.fd) as inside:
        pod.run("ip", "link", "add", "eth0", "type", "bridge")
        with pytest.raises(KernelError, match="EEXIST"):
            links.made(sock, _veth("cali0", pod), "cali0")
        assert [link.name for link in links.dump(sock)] == ["lo"]
        assert {link.name for link in links.dump(inside)} == {"lo", "eth0"}


@pytest.mark.parametrize("name", ["", "a" * 16, "a/b", "..", "a b"])
def test_names_the_kernel_would_misread_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="interface name"):
        links.delete(name)


def test_a_wired_pod_speaks_and_its_settings_read_back(
    spaces: tuple[Namespace, Namespace],
) -> None:
    host, pod = spaces
    host.run("ip", "address", "add", "10.99.0.1/32", "dev", "lo")
    with Socket() as sock:
        index, _ = _wire(sock, pod, "cali0", "10.65.0.1/32")
        pod.run("ping", "-c", "1", "-W", "60", "10.99.0.1")
        host.run("ping", "-c", "1", "-W", "60", "-I", "10.99.0.1", "10.65.0.1")
        link = links.get(sock, index)
        assert link is not None
        assert (link.inet("proxy_arp"), link.inet("route_localnet")) == (1, 1)
        wanted = {"forwarding": 1, "proxy_arp": 1, "rp_filter": 1}
        assert list(links.differing_conf(link, wanted)) == []
        assert sysctl.get("net/ipv4/conf/cali0/proxy_arp") == "1"
        assert sysctl.get("net/ipv4/neigh/cali0/proxy_delay") == "0"
        sysctl.set("net/ipv4/conf/cali0/rp_filter", 0)
        sysctl.set("net/ipv6/conf/cali0/accept_ra", 0)
        link = links.get(sock, index)
        assert link is not None
        assert list(links.differing_conf(link, wanted)) == [("rp_filter", 1)]
        assert link.inet6("accept_ra") == 0
        sock.request(links.delete("cali0"))
    assert "eth0" not in pod.run("ip", "link")


def test_links_of_a_group_leave_together(spaces: tuple[Namespace, Namespace]) -> None:
    with Socket() as sock:
        made = [
            links.made(sock, links.create(f"br{n}", "bridge"), f"br{n}").index for n in range(4)
        ]
        _ok(sock.transact([links.set_group(index, 4711) for index in made[:3]]))
        sock.request(links.delete_group(4711))
        assert [link.name for link in links.dump(sock)] == ["lo", "br3"]
    with pytest.raises(ValueError, match="every link"):
        links.delete_group(0)


def test_a_link_can_be_changed(spaces: tuple[Namespace, Namespace]) -> None:
    host, pod = spaces
    with Socket() as sock:
        bridge = links.made(sock, links.create("br0", "bridge", up=True), "br0")
        index = links.made(sock, _veth("cali0", pod), "cali0").index
        host.run("ip", "link", "set", "cali0", "master", "br0")
        _ok(
            sock.transact(
                [
                    links.set_mac("cali0", "02:00:00:00:00:09"),
                    links.set_mtu(index, 1300),
                    links.set_alias(index, "0123abcd/eth0"),
                    links.set_down(index),
                ]
            )
        )
        link = links.get(sock, index)
        assert link is not None
        assert (link.mac, link.mtu, link.master, link.up) == (
            "02:00:00:00:00:09", 1300, bridge.index, False,
        )  # fmt: skip
        assert link.alias == "0123abcd/eth0"


def test_how_long_a_pods_wire_takes(spaces: tuple[Namespace, Namespace]) -> None:
    del spaces
    times = []
    with Socket() as sock:
        for number in range(10):
            with network_namespace("speed", loopback=False) as pod:
                start = time.perf_counter()
                _wire(sock, pod, f"cali{number}", f"10.65.1.{number}/32")
                times.append((time.perf_counter() - start) * 1000)
    print(f"veth + pod batch + host batch: median {statistics.median(times):.2f} ms of 10")


def test_a_link_is_there_in_the_sockets_namespace(spaces: tuple[Namespace, Namespace]) -> None:
    host, pod = spaces
    del host
    with Socket() as sock, netlink.open_in_netns(pod.fd) as inside:
        assert not links.is_there(sock, "cali0")
        sock.request(_veth("cali0", pod))
        assert links.is_there(sock, "cali0")
        assert not links.is_there(inside, "cali0")
        with pytest.raises(ValueError, match="15 bytes"):
            links.is_there(sock, "a-name-that-is-too-long")


def test_a_kernel_that_cannot_be_asked_does_not_say_that_a_name_is_free() -> None:
    """As one that knows no such call on a netlink socket; of a file it is not known either."""
    with Socket() as sock, open("/dev/null", "rb") as file:
        assert not links.is_there(sock, "cali-none")
        os.dup2(file.fileno(), sock.fileno())
        assert links.is_there(sock, "cali-none")


def test_without_an_echo_the_link_is_found_by_its_name(
    spaces: tuple[Namespace, Namespace],
) -> None:
    """As on kernels before 6.2 (Debian 12), which answer a creation with its success alone."""

    class Silent(Socket):
        def transact(self, messages: Sequence[bytes]) -> list[Result]:
            results = super().transact(messages)
            if len(messages) == 1 and messages[0] == creation:
                results[0].answers.clear()
            return results

    creation = _veth("cali0", spaces[1])
    with Silent() as sock:
        made = links.made(sock, creation, "cali0")
        link = links.get(sock, "cali0")
        assert link is not None
        assert made == links.Made(link.index, link.peer_index)
        assert made.peer_index
