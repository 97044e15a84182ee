"""Packets a second between two pods: felix's rules against the same rules written by hand.

Nodes side by side, each with a client and a server; on one felix writes the rules, on another
this module, as a careful person would for these two pods and with the same verdicts: no pod
sends with another's address or to the node's loopback, tunnel packets of pods and packets of
unknown interfaces are dropped, what leaves the pool is masqueraded, and a packet is accepted only
once it is known whose it is. Each policy lets in the members of a network set, over a chain and a
set of its own; the client is let in by the last one. Two kinds of traffic: packets of one
connection, and connections that are begun, each by one packet, which meets every policy.

With iptables a third node has Calico's rules: the static chains and the rules of endpoints and
policies are those whose hashes are equal to a recording of it (tests/felix/rules/test_rules.py),
written as it writes them, with a program and each comment in front.

A packet's whole way is done on its sender's CPU time, so packets are counted per CPU second: on
a busy machine too. The sides take turns; `ratio` is the median of the ratios of the turns, felix's
pace to that of the rules by hand, `calico_ratio` Calico's to the same. `rules` says how many rules
a packet of the one connection meets, by the counters of the kernel.
"""

from __future__ import annotations

import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from felix.dataplane.rules.iptables import SCHEME
from felix.rules.hosts import DISPATCH
from felix.rules.inputs import Facts, RuleSettings
from felix.rules.iptables import render_rules
from felix.rules.model import Rule
from felix.rules.static import tables
from tests.bench._felix_world import Bench, Json, loaded, own_member, soon
from tests.felix.in_kernel import NFTABLES
from tests.felix.world import POOL, Pod, World

ROUNDS = 15
PORT = 2000
SOURCE = Path(__file__).with_name("_flood.c")
# Name: ports, packets of a turn; fewer where each meets many policies.
TRAFFIC = {"one_connection": (1, 20_000), "new_connections": (20_000, 20_000)}
COUNTED = 1000
_COMMENT = re.compile(r'-m comment --comment (?:"[^"]*"|\S+)')
Sides = dict[str, tuple[Bench, Pod, Pod]]


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
        f"create -exist {name} hash:net\nflush {name}\nadd {name} {member}\n"
        for name, member in [("pool", POOL), *((f"hand{n}", m) for n, m in enumerate(members))]
    )
    chains = [f"hand{n}" for n in range(len(members))]
    lines = [
        "*raw", ":PREROUTING ACCEPT [0:0]",
        "-A PREROUTING -i cali+ -m rpfilter --invert --validmark -j DROP",
        "-A PREROUTING -i cali+ -d 127.0.0.0/8 -j DROP", "COMMIT",
        "*nat", ":POSTROUTING ACCEPT [0:0]",
        "-A POSTROUTING -m set --match-set pool src -m set ! --match-set pool dst"
        " -j MASQUERADE --random-fully", "COMMIT",
        "*filter", ":FORWARD ACCEPT [0:0]",
        ":from - [0:0]", ":to - [0:0]",
        *(f":{name} - [0:0]" for name in ("frompod", "toclient", "toserver", *chains)),
        "-A FORWARD -i cali+ -j from", "-A FORWARD -o cali+ -j to",
        "-A from -i caliclient -g frompod", "-A from -i caliserver -g frompod", "-A from -j DROP",
        "-A to -o caliclient -g toclient", "-A to -o caliserver -g toserver", "-A to -j DROP",
    ]  # fmt: skip
    for name in ("frompod", "toclient", "toserver"):
        lines += [
            f"-A {name} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
            f"-A {name} -m conntrack --ctstate INVALID -j DROP",
        ]
    lines += ["-A frompod -p udp --dport 4789 -j DROP", "-A frompod -p 4 -j DROP"]
    lines += [f"-A toserver -j {name}" for name in chains]
    lines += ["-A toserver -j DROP"] if members else []
    lines += [f"-A {n} -p udp -m set --match-set {n} src -j ACCEPT" for n in chains]
    world.node.run("ipset", "restore", input=sets)
    world.node.run("iptables-nft-restore", input="\n".join([*lines, "COMMIT", ""]))


def _nftables(world: World, members: list[str]) -> None:
    states = "ct state established,related counter accept\nct state invalid counter drop\n"
    parts = ["add table ip hand", "delete table ip hand", "table ip hand {"]
    parts += [f"set pool {{ type ipv4_addr; flags interval; elements = {{ {POOL} }} }}"]
    for number, member in enumerate(members):
        parts += [
            f"set s{number} {{ type ipv4_addr; flags interval; elements = {{ {member} }} }}",
            f"chain p{number} {{ meta l4proto udp ip saddr @s{number} counter accept; }}",
        ]
    jumps = "".join(f"counter jump p{number}\n" for number in range(len(members)))
    parts += [
        f"chain toserver {{\n{states}{jumps}{'counter drop' if members else ''}\n}}",
        f"chain toclient {{\n{states}}}",
        f"chain frompod {{\n{states}udp dport 4789 counter drop\nmeta l4proto 4 counter drop\n}}",
        'chain from { iifname vmap { "caliclient" : goto frompod, "caliserver" : goto frompod }',
        "counter drop\n}",
        'chain to { oifname vmap { "caliclient" : goto toclient, "caliserver" : goto toserver }',
        "counter drop\n}",
        "chain early { type filter hook prerouting priority raw;",
        'iifname "cali*" fib saddr . mark . iif oif 0 counter drop',
        'iifname "cali*" ip daddr 127.0.0.0/8 counter drop',
        "}",
        "chain late { type nat hook postrouting priority 110;",
        "ip saddr @pool ip daddr != @pool counter masquerade fully-random",
        "}",
        "chain forward { type filter hook forward priority filter;",
        'iifname "cali*" counter jump from',
        'oifname "cali*" counter jump to',
        "}\n}",
    ]
    world.node.run("nft", "-f", "-", input="\n".join(parts))


def by_calico(calico: World, felix: World) -> None:
    """Calico's rules for the same: what felix wrote for endpoints and policies, Calico's hooks."""
    calico.node.run("ipset", "restore", "-!", input=felix.node.run("ipset", "save"))
    models = tables(4, RuleSettings(), Facts(nat_outgoing=True))
    for name in (*(set(models) - {"filter"}), "filter"):
        chains = {chain.name: _rendered(chain.name, chain.rules) for chain in models[name].chains}
        chains |= {chain: [] for chain in DISPATCH.get(name, ())}
        for hooks, salt in ((models[name].inserts, ""), (models[name].appends, "*appends*")):
            for chain, rules in hooks.items():
                chains.setdefault(chain, []).extend(_rendered(chain, rules, salt))
        if name == "filter":
            chains = _of_pods(felix) | chains
        lines = [f":{chain} - [0:0]" for chain in chains if chain.startswith("cali")]
        lines += [rule for rules in chains.values() for rule in rules]
        text = "\n".join((f"*{name}", *lines, "COMMIT", ""))
        calico.node.run("iptables-nft-restore", input=text)


def _rendered(chain: str, rules: Iterable[Rule], salt: str = "") -> list[str]:
    fragments = render_rules(rules)
    hashes = SCHEME.hashes(chain + salt, fragments)
    both = zip(hashes, fragments, strict=True)
    return [f"-A {chain} {SCHEME.comment(each)} {text}" for each, text in both]


def _of_pods(felix: World) -> dict[str, list[str]]:
    """The chains that are not static, by name, each rule with its comments in front."""
    chains: dict[str, list[str]] = {}
    for line in felix.node.run("iptables-nft-save", "-t", "filter").splitlines():
        if declared := re.match(r":(cali-\S+) ", line):
            chains[declared.group(1)] = []
        elif line.startswith("-A cali-"):
            _, chain, rule = line.split(" ", 2)
            said = " ".join(_COMMENT.findall(rule))
            rest = " ".join(_COMMENT.sub("", rule).split())
            chains[chain].append(f"-A {chain} {said} {rest}")
    return chains


def rate(
    program: Path, client: Pod, server: Pod, ports: int, count: int, world: World
) -> tuple[float, float]:
    """Packets per CPU second of one turn, and which part of them arrived."""
    if ports > 1:
        world.node.run("conntrack", "-F", check=False)
    server.space.run("iptables-nft", "-t", "raw", "-Z")
    out = client.space.run(str(program), server.address, str(PORT), str(ports), str(count))
    listed = server.space.run("iptables-nft", "-t", "raw", "-nvxL", "PREROUTING")
    arrived = int(listed.splitlines()[2].split()[0])
    return count / float(out.split()[0]), arrived / count


def rules_met(program: Path, client: Pod, server: Pod, world: World) -> float:
    """How many rules a packet of one connection meets whose conditions hold."""
    before = counted(world)
    client.space.run(str(program), server.address, str(PORT), "1", str(COUNTED))
    return round((counted(world) - before) / COUNTED, 1)


def counted(world: World) -> int:
    """What the counters of all rules of IPv4 say together."""
    listed = world.node.run("nft", "list", "ruleset", "ip")
    return sum(map(int, re.findall(r"counter packets (\d+)", listed)))


def compare(sides: Sides, traffic: str, size: int, program: Path) -> Json:
    """The sides in turns."""
    ports, count = TRAFFIC[traffic]
    if ports > 1:
        count //= 1 + size // 100
    paces: dict[str, list[float]] = {side: [] for side in sides}
    least = 1.0
    for turn in range(ROUNDS):
        for side in sorted(sides, reverse=bool(turn % 2)):
            bench, client, server = sides[side]
            pace, arrived = rate(program, client, server, ports, count, bench.world)
            paces[side].append(pace)
            least = min(least, arrived)
    ratios = {
        side: round(median(a / b for a, b in zip(found, paces["by_hand"], strict=True)), 3)
        for side, found in paces.items()
    }
    return {
        **{f"{side}_per_cpu_s": round(median(found)) for side, found in paces.items()},
        "ratio": ratios["felix"],
        "ratio_of_best": round(max(paces["felix"]) / max(paces["by_hand"]), 3),
        **({"calico_ratio": ratios["calico"]} if "calico" in sides else {}),
        "arrived": round(least, 4),
    }


def measure(folder: Path, backend: str, sizes: tuple[int, ...]) -> Json:
    """Rates and ratios for each number of policies."""
    folder.mkdir()
    program = folder / "flood"
    subprocess.run(["gcc", "-O2", "-o", str(program), str(SOURCE)], check=True)
    result: Json = {}
    peers = ("by_hand",) if backend == NFTABLES else ("by_hand", "calico")
    with ExitStack() as stack:
        benches = {
            side: stack.enter_context(loaded(folder / side, backend, 0, 0))
            for side in ("felix", *peers)
        }
        ours = benches["felix"]
        with ours.world.node.entered():
            sides = {"felix": (ours, *prepare(ours))}
            ours.start()
        for side in peers:
            world = benches[side].world
            with world.node.entered():
                sides[side] = (benches[side], *prepare(benches[side]))
            for pod in world.pods:
                world.ip(f"route add {pod.address}/32 dev {pod.interface}")
            world.node.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        soon(lambda: ours.world.route("10.65.9.2/32"), 0.1, "the route of the server")
        for size in sizes:
            with ours.world.node.entered():
                by_felix(ours, size)
            by_hand(benches["by_hand"].world, size, backend == NFTABLES)
            if "calico" in benches:
                by_calico(benches["calico"].world, ours.world)
            found = {traffic: compare(sides, traffic, size, program) for traffic in TRAFFIC}
            for side, (bench, client, server) in sides.items():
                met = rules_met(program, client, server, bench.world)
                found["one_connection"][f"{side}_rules"] = met
            result[str(size)] = found
    return result
