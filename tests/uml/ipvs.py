"""Services in IPVS on a felix node: `python -m tests.uml.ipvs`, inside.

What kube-proxy in ipvs mode makes is made by hand: the link kube-ipvs0 with the addresses of
services, the virtual servers, its ipsets and the rules for masquerading. Results are in
/out/result.json, judged by tests/uml/test_ipvs.py.

    client 10.65.0.1 ┐
    other  10.65.0.3 ┼ node 10.99.7.1:30080, 10.96.0.10:80 (IPVS), :8080 (portmap) ── outside
    server 10.65.0.2 ┘
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.felix.in_kernel import mode
from tests.felix.stage import allow
from tests.felix.world import Pod, World, make_world
from tests.support.netns import Namespace
from tests.support.patience import HANG, wait_for
from tests.support.uml import SLOWER

RESULT = Path("/out/result.json")
PATIENCE = HANG * SLOWER
CLOSED = 5.0
"""Seconds in which nothing came about."""
SERVICE, NODE_PORT, HOST_PORT = ("10.96.0.10", 80), ("10.99.7.1", 30080), ("10.99.7.1", 8080)
SETS = "create KUBE-CLUSTER-IP hash:ip,port\nadd KUBE-CLUSTER-IP 10.96.0.10,tcp:80\n\
create KUBE-NODE-PORT-TCP bitmap:port range 0-65535\nadd KUBE-NODE-PORT-TCP 30080\n\
create KUBE-LOOP-BACK hash:ip,port,ip\nadd KUBE-LOOP-BACK 10.65.0.2,tcp:80,10.65.0.2\n"
RULES = """*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODE-PORT - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-POSTROUTING - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A OUTPUT -j KUBE-SERVICES
-A POSTROUTING -j KUBE-POSTROUTING
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A KUBE-SERVICES ! -s 10.65.0.0/16 -m set --match-set KUBE-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT
-A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT
-A KUBE-NODE-PORT -p tcp -m set --match-set KUBE-NODE-PORT-TCP dst -j KUBE-MARK-MASQ
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -j MASQUERADE
-A CNI-HOSTPORT-DNAT -p tcp --dport 8080 -j DNAT --to-destination 10.65.0.2:80
COMMIT
"""
WAYS = (
    "client service",
    "other service",
    "outside service",
    "outside node port",
    "outside host port",
)
REACH = {
    "open": WAYS,
    "ingress": ("client service",),
    "outside alone": ("outside service", "outside node port", "outside host port"),
    "egress to the backend": WAYS,
    "egress not to the backend": tuple(way for way in WAYS if way != "other service"),
}
"""Which ways are open under each policy of the scenario."""
Result = dict[str, Any]


def answers(source: Namespace, there: tuple[str, int], within: float = CLOSED) -> bool:
    """Whether a byte comes back over a connection."""

    def ask() -> bool:
        with closing(socket.socket()) as caller:
            caller.settimeout(within)
            try:
                caller.connect(there)
                caller.sendall(b"x")
                return caller.recv(1) == b"x"
            except OSError:
                return False

    return source.call(ask)


ECHO = """
import socket, threading
listener = socket.create_server(("10.65.0.2", 80), backlog=64)
def echo(one):
    with one:
        one.settimeout(60)
        try: one.sendall(one.recv(1))
        except OSError: pass
while True:
    threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()
"""


def serve(node: Namespace) -> None:
    """What kube-proxy would have made, and the plugin portmap."""
    subprocess.run(["modprobe", "-a", "ip_vs", "ip_vs_rr", "dummy"], check=True)
    for words in (
        "sysctl -qw net.ipv4.vs.conntrack=1",
        "sysctl -qw net.ipv4.ip_forward=1",
        "ip link add kube-ipvs0 type dummy",
        "ip address add 10.96.0.10/32 dev kube-ipvs0",
        *(
            words
            for address, port in (SERVICE, NODE_PORT)
            for words in (
                f"ipvsadm -A -t {address}:{port} -s rr",
                f"ipvsadm -a -t {address}:{port} -r 10.65.0.2:80 -m",
            )
        ),
    ):
        node.run(*words.split())
    node.run("ipset", "restore", input=SETS)
    node.run("iptables-legacy-restore", "--noflush", input=RULES)


def policy(world: World, name: str, spec: dict[str, Any]) -> None:
    world.put("globalnetworkpolicies", name, "GlobalNetworkPolicy", spec)


def seen(world: World, client: Pod, other: Pod) -> Result:
    """Who reaches the server by which way."""
    return {
        "client service": answers(client.space, SERVICE),
        "other service": answers(other.space, SERVICE),
        "outside service": answers(world.outside, SERVICE),
        "outside node port": answers(world.outside, NODE_PORT),
        "outside host port": answers(world.outside, HOST_PORT),
    }


def settled(world: World, client: Pod, other: Pod, wanted: Collection[str]) -> Result:
    """The same once these ways answer and no other; after `PATIENCE` the last that was seen."""
    end = time.monotonic() + PATIENCE
    while True:
        found = seen(world, client, other)
        if {way for way in found if found[way]} == set(wanted) or time.monotonic() > end:
            return found
        time.sleep(0.1)


def scenario(world: World) -> Result:
    """Policies come and go; felix runs all the while."""
    found: Result = {}
    world.environment |= mode("legacy") | {"FELIX_IPV6SUPPORT": "false"}
    world.environment["FELIX_DEFAULTENDPOINTTOHOSTACTION"] = "DROP"
    world.etcd.start()
    world.write_cluster()
    world.start_felix()
    world.wait_ready(PATIENCE)
    pods = []
    for number, name in enumerate(("client", "server", "other"), 1):
        pod = world.wire(f"cali0{name}", f"10.65.0.{number}")
        world.put_endpoint(name, pod, labels={"role": name})
        pods.append(pod)
    client, server, other = pods
    world.outside.run("ip", "route", "add", "10.96.0.0/16", "via", "10.99.7.1")
    echo = server.space.popen(sys.executable, "-c", ECHO)
    try:
        serve(world.node)

        def look(name: str) -> None:
            found[name] = settled(world, client, other, REACH[name])

        wait_for(lambda: world.chain("cali-ipvs-from"), "felix saw the link", limit=PATIENCE)
        look("open")
        clients = allow(source={"selector": "role == 'client'"})
        guard = {"selector": "role == 'server'", "types": ["Ingress"], "ingress": [clients]}
        policy(world, "guard", guard)
        look("ingress")
        outside = allow(source={"nets": ["10.99.7.0/24"]})
        policy(world, "guard", {**guard, "ingress": [outside]})
        look("outside alone")
        world.delete("globalnetworkpolicies", "guard")
        # By the backend, whatever the service's address is.
        servers = {"selector": "role == 'server'"}
        leave = {"selector": "role == 'other'", "types": ["Egress"]}
        policy(world, "leave", {**leave, "egress": [allow(destination=servers)]})
        look("egress to the backend")
        not_server = [{"action": "Deny", "destination": servers}, allow()]
        policy(world, "leave", {**leave, "egress": not_server})
        look("egress not to the backend")
        stray = world.wire("cali0stray", "10.65.0.9")
        found["stray"] = answers(stray.space, SERVICE)
        found["connections"] = world.node.run("ipvsadm", "-Ln", "--stats")
        world.ip("link del kube-ipvs0")
        wait_for(lambda: not world.chain("cali-ipvs-out"), "the rules are gone", limit=PATIENCE)
        found["left"] = world.node.run("iptables-legacy-save").count("ipvs")
    finally:
        echo.kill()
        echo.wait()
    return found


def main() -> int:
    """All of it."""
    result: Result = {}
    folder = Path("/tmp/world")
    folder.mkdir(parents=True)
    try:
        with make_world(folder) as world:
            try:
                result = scenario(world)
            finally:
                result["log"] = world.log()[-4000:]
                result["rules"] = world.node.run("iptables-legacy-save", "-c")[-12000:]
    except BaseException:
        result["error"] = traceback.format_exc()
    RESULT.write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
