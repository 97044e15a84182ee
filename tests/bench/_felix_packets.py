"""Packets a second between two pods: felix's rules against the same rules written by hand.

Two nodes side by side, each with a client and a server; on one felix writes the rules, on the
other this module. Each policy lets in the members of a network set, over a chain and a set of
its own; the client is let in by the last one. Two kinds of traffic: packets of one connection,
and packets that are each the first of a connection, which meet every policy.

A packet's whole way is done on its sender's CPU time, so packets are counted per CPU second: on
a busy machine too. Rounds take turns; the best of each side counts.
"""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from pathlib import Path

from tests.bench._felix_world import Bench, Json, loaded, own_member, soon
from tests.felix.in_kernel import NFTABLES
from tests.felix.world import Pod, World

ROUNDS = 5
PORT = 2000
SOURCE = Path(__file__).with_name("_flood.c")
# Name: ports, packets of a round.
TRAFFIC = {"one_connection": (1, 60_000), "first_packets": (20_000, 20_000)}


def prepare(bench: Bench) -> tuple[Pod, Pod]:
    """A client and a server that counts and drops what arrives."""
    pods = []
    for number, name in enumerate(("client", "server"), 1):
        pod = bench.world.wire(f"cali{name}", f"10.65.9.{number}", f"fd65::9:{number}")
        bench.world.put_endpoint(name, pod, labels={"role": name})
        pods.append(pod)
    # What the flood sends has 46 bytes; its question is answered, so that there is a connection.
    drop = "iptables-nft -t raw -A PREROUTING -p udp -m length --length 46 -j DROP"
    pods[1].space.run(*drop.split())
    ear = pods[1].space.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    ear.bind((pods[1].address, PORT))
    threading.Thread(target=answer, args=(ear,), daemon=True).start()
    return pods[0], pods[1]


def answer(ear: socket.socket) -> None:
    """Answer everything that comes, for ever."""
    while True:
        ear.sendto(b"!", ear.recvfrom(64)[1])


def by_felix(bench: Bench, count: int) -> None:
    """`count` policies; waits until the last is in force."""
    for number in range(count):
        last = number == count - 1
        bench.put_set(number, [])
        rule = {
            "action": "Allow",
            "protocol": "UDP",
            "source": {"selector": "role == 'client'" if last else f"net == 'n{number}'"},
        }
        spec = {"order": number, "selector": "role == 'server'", "types": ["Ingress"]}
        bench.store.object(
            "globalnetworkpolicies", "GlobalNetworkPolicy", f"p{number}", spec | {"ingress": [rule]}
        )
    if count:
        name = f"cali-pi-gnp/p{count - 1}"
        soon(lambda: bench.world.chain(name), 0.2, "the last policy")
    time.sleep(2)


def by_hand(world: World, count: int, native: bool) -> None:
    """The same, as a careful person would write it."""
    members = [own_member(number) for number in range(count - 1)] + ["10.65.9.1"]
    write = _nftables if native else _iptables
    write(world, members[:count])


def _iptables(world: World, members: list[str]) -> None:
    sets = "".join(
        f"create -exist hand{n} hash:net\nflush hand{n}\nadd hand{n} {member}\n"
        for n, member in enumerate(members)
    )
    names = ["fromclient", "toserver", *(f"hand{n}" for n in range(len(members)))]
    lines = [
        "*raw", ":PREROUTING ACCEPT [0:0]",
        "-A PREROUTING -i cali+ -m rpfilter --invert --validmark -j DROP", "COMMIT",
        "*filter", ":FORWARD ACCEPT [0:0]", *(f":{name} - [0:0]" for name in names),
        "-A FORWARD -i calicl+ -j fromclient", "-A FORWARD -o calise+ -j toserver",
    ]  # fmt: skip
    for name in names[:2]:
        lines += [
            f"-A {name} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
            f"-A {name} -m conntrack --ctstate INVALID -j DROP",
        ]
    lines += [f"-A toserver -j {name}" for name in names[2:]]
    lines += ["-A toserver -j DROP"] if members else []
    lines += [f"-A {n} -p udp -m set --match-set {n} src -j ACCEPT" for n in names[2:]]
    world.node.run("ipset", "restore", input=sets)
    world.node.run("iptables-nft-restore", input="\n".join([*lines, "COMMIT", ""]))


def _nftables(world: World, members: list[str]) -> None:
    states = "ct state established,related counter accept\nct state invalid counter drop\n"
    parts = ["add table ip hand", "delete table ip hand", "table ip hand {"]
    for number, member in enumerate(members):
        parts += [
            f"set s{number} {{ type ipv4_addr; flags interval; elements = {{ {member} }} }}",
            f"chain p{number} {{ meta l4proto udp ip saddr @s{number} counter accept; }}",
        ]
    jumps = "".join(f"counter jump p{number}\n" for number in range(len(members)))
    parts += [
        f"chain toserver {{\n{states}{jumps}{'counter drop' if members else ''}\n}}",
        f"chain fromclient {{\n{states}}}",
        "chain early { type filter hook prerouting priority raw;"
        ' iifname "cali*" fib saddr . iif oif 0 counter drop; }',
        "chain forward { type filter hook forward priority filter;",
        'iifname vmap { "caliclient" : jump fromclient }',
        'oifname vmap { "caliserver" : jump toserver }',
        "}\n}",
    ]
    world.node.run("nft", "-f", "-", input="\n".join(parts))


def rate(
    program: Path, client: Pod, server: Pod, traffic: str, world: World
) -> tuple[float, float]:
    """Packets per CPU second of one round, and which part of them arrived."""
    ports, count = TRAFFIC[traffic]
    world.node.run("conntrack", "-F", check=False)
    server.space.run("iptables-nft", "-t", "raw", "-Z")
    out = client.space.run(str(program), server.address, str(PORT), str(ports), str(count))
    listed = server.space.run("iptables-nft", "-t", "raw", "-nvxL", "PREROUTING")
    arrived = int(listed.splitlines()[2].split()[0])
    return count / float(out.split()[0]), arrived / count


def measure(folder: Path, backend: str, sizes: tuple[int, ...]) -> Json:
    """Rates and ratios for each number of policies."""
    folder.mkdir()
    program = folder / "flood"
    subprocess.run(["gcc", "-O2", "-o", str(program), str(SOURCE)], check=True)
    result: Json = {}
    with (
        loaded(folder / "felix", backend, 0, 0) as ours,
        loaded(folder / "hand", backend, 0, 0) as hand,
    ):
        with ours.world.node.entered():
            sides = {"felix": (ours, *prepare(ours))}
            ours.start()
        sides["by_hand"] = (hand, *prepare(hand))
        soon(lambda: ours.world.route("10.65.9.2/32"), 0.1, "the route of the server")
        for pod in hand.world.pods:
            hand.world.ip(f"route add {pod.address}/32 dev {pod.interface}")
        hand.world.node.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        for size in sizes:
            with ours.world.node.entered():
                by_felix(ours, size)
            by_hand(hand.world, size, backend == NFTABLES)
            found: Json = {}
            for traffic in TRAFFIC:
                best, least = dict.fromkeys(sides, 0.0), dict.fromkeys(sides, 1.0)
                for _ in range(ROUNDS):
                    for side, (bench, client, server) in sides.items():
                        pace, arrived = rate(program, client, server, traffic, bench.world)
                        best[side] = max(best[side], pace)
                        least[side] = min(least[side], arrived)
                found[traffic] = {
                    **{f"{side}_per_cpu_s": round(pace) for side, pace in best.items()},
                    "ratio": round(best["felix"] / best["by_hand"], 3),
                    "arrived": round(min(least.values()), 4),
                }
            result[str(size)] = found
    return result
