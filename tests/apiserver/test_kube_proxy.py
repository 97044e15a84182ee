"""The living kube-proxy and felix on one node, both rewriting at once; nothing of either is lost.

client 10.65.0.2 -- node (felix, kube-proxy, API server) -- server 10.65.0.1, service `steady`
"""

from __future__ import annotations

import os
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from tests.felix.in_kernel import mode
from tests.felix.stage import allow
from tests.felix.world import NODE, Pod, World, make_world
from tests.support.apiserver import ApiServer
from tests.support.kube_proxy import METRICS_PORT, RANGES, KubeProxy, write_services
from tests.support.patience import wait_for

SECONDS = 6.0 if os.environ.get("MUSLIN_FULL_SIZE") else 3.0
STEADY = "10.96.0.17"
PAIRS = (
    ("iptables", "nft", "nft"),
    ("iptables", "legacy", "legacy"),
    ("nftables", "nft", "nftables"),
    ("nftables", "nft", "nft"),
)
FAILURES = (
    "kubeproxy_sync_proxy_rules_iptables_restore_failures_total",
    "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total",
    "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
    "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total",
)


@dataclass
class Node:
    """One node with both agents. `table`: what kube-proxy wrote."""

    world: World
    api: ApiServer
    proxy: KubeProxy
    client: Pod
    server: Pod
    mode: str
    variant: str

    @property
    def table(self) -> str:
        if self.mode == "nftables":
            return self.world.node.run("nft", "list", "table", "ip", "kube-proxy", check=False)
        return self.world.node.run(f"iptables-{self.variant}-save")

    def steady(self) -> bool:
        """Whether a connection of the client to the service's address comes to the server."""
        caller = self.client.space.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        with closing(caller):
            caller.settimeout(1.0)
            try:
                caller.connect((STEADY, 80))
            except OSError:
                return False
        return True

    def failures(self) -> dict[str, float]:
        """What kube-proxy could not write, by its own count."""
        with urllib.request.urlopen(
            f"http://127.0.0.1:{METRICS_PORT}/metrics", timeout=120
        ) as page:
            lines = [line.split() for line in page.read().decode().splitlines()]
        found: dict[str, float] = {}
        for line in lines:
            name = line[0].partition("{")[0]
            if name in FAILURES:
                found[name] = found.get(name, 0.0) + float(line[-1])
        return found


def moved_to(number: int) -> str:
    """An address that no other service has."""
    return f"10.65.{100 + number // 100}.{100 + number % 100}"


def greet(listener: socket.socket) -> None:
    """Take every connection until the listener is shut."""
    while True:
        try:
            listener.accept()[0].close()
        except OSError:
            return


@pytest.fixture(params=PAIRS, ids="-".join)
def beside(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    """Both have written everything, and the service answers."""
    proxy_mode, variant, backend = request.param
    with make_world(tmp_path_factory.mktemp("world")) as world:
        world.environment |= mode(backend)
        world.etcd.start()
        world.write_cluster()
        pods = [
            world.add_pod(name, f"cali0{name}", f"10.65.0.{number}", f"fd65::{number}")
            for number, name in enumerate(("server", "client"), 1)
        ]
        world.start_felix()
        api = ApiServer(world.folder / "api", [f"--service-cluster-ip-range={RANGES}"]).start()
        addresses = ("10.99.7.1", "2001:db8:7::1")
        run = world.folder / "run"
        proxy = KubeProxy(api, world.node, run, NODE, addresses, "10.65.0.0/16,fd65::/48")
        server, client = pods
        node = Node(world, api, proxy, client, server, proxy_mode, variant)
        listener = server.space.call(lambda: socket.create_server((server.address, 8080)))
        threading.Thread(target=greet, args=[listener], daemon=True).start()
        try:
            write_services(api)
            proxy.start(proxy_mode, variant)
            world.wait_ready()
            wait_for(node.steady, "the service answers")
            # kube-proxy put its jumps in front of felix's when it started; that is put right.
            reads = world.rule_reads
            wait_for(lambda: world.rule_reads >= reads + 2)
            yield node
        finally:
            # What waits in accept(2) is woken by this, not by close(2).
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            proxy.stop()
            api.stop()


@pytest.mark.promise("PAIN-20")
@pytest.mark.promise("ADV-9")
def test_both_rewrite_at_once_and_nothing_is_lost(beside: Node) -> None:
    node, world = beside, beside.world
    drift = world.metric("muslin_felix_rule_drift_total")
    failures = node.failures()
    written = world.rule_writes
    done = threading.Event()
    moves = 0

    def services_move() -> None:
        nonlocal moves
        while not done.is_set():
            moves += 1
            node.api.slice("web-node1-4", "web", [moved_to(moves)], [8080], space="shop")

    mover = threading.Thread(target=services_move)
    mover.start()
    rounds, served, until = 0, 0, time.monotonic() + SECONDS
    try:
        while time.monotonic() < until or rounds < 10 or moves <= 10:
            rounds += 1
            rule = allow(protocol="TCP", destination={"ports": [8080, 7000 + rounds]})
            spec = {"selector": "all()", "types": ["Ingress"], "ingress": [rule]}
            world.put("globalnetworkpolicies", "churn", "GlobalNetworkPolicy", spec)
            served += node.steady()
    finally:
        done.set()
        mover.join()
    assert served == rounds, "a connection found rules of one of them missing"
    assert moves > 10
    # Each finds its own last word in the kernel, and all that stood before.
    wait_for(lambda: str(7000 + rounds) in world.chain("cali-pi-gnp/churn"))
    wait_for(lambda: moved_to(moves) in node.table)
    for service in ("sticky", "port", "near", "fenced", "outer", "empty", "steady"):
        assert f"shop/{service}" in node.table, service
    # Neither ever had to make good what the other had broken.
    assert world.metric("muslin_felix_rule_drift_total") == drift
    assert world.metric("felix_int_dataplane_failures") == 0, world.log()[-2000:]
    assert world.rule_writes > written + 3
    assert node.failures() == failures, node.proxy.log()[-3000:]
    assert not any(failures.values())


@pytest.mark.promise("PAIN-20")
def test_felix_mends_its_own_beside_kube_proxy_and_neither_restart_is_felt(beside: Node) -> None:
    node, world = beside, beside.world
    before = node.table
    assert "shop/near" in before
    world.kernel.flush("cali-FORWARD")
    wait_for(lambda: "to-wl-dispatch" in world.chain("cali-FORWARD"))
    assert node.steady()
    world.stop_felix()
    assert node.steady()
    node.proxy.stop()
    world.start_felix()
    world.wait_ready()
    assert world.rule_writes == 0
    assert node.steady()
    hooks = world.kernel.counted("cali-FORWARD")
    node.proxy.start(node.mode, node.variant)
    wait_for(lambda: "Starting service config" in node.proxy.log().rpartition("Proxier")[2])
    wait_for(node.steady)
    after = world.kernel.counted("cali-FORWARD")
    assert all(now >= before for (now, _), (before, _) in zip(after, hooks, strict=True))
    assert after[0][0] > hooks[0][0], "rules that were written anew count from nothing"
