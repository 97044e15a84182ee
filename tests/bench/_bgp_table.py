"""One node's table: how soon a block is known elsewhere, and how long a large table takes.

Parts claim and table of `./run bench bgp`.
"""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import ExitStack
from ipaddress import ip_network
from pathlib import Path

from libcalico.datastore.etcd.keys import path_of
from libcalico.model import codec
from libcalico.model.keys import AffinityKey, BlockKey, Key
from libcalico.model.resources.ipam import Block, BlockAffinity
from tests.bench._felix_world import Json, Store
from tests.bench.felix import figures, prefixes
from tests.bgp.routed import FIB, Felix, use_pool
from tests.bgp.world import ROUTER, Node, World, cluster
from tests.support.netns import Namespace
from tests.support.patience import wait_for

PATIENCE = 300.0


def rows(space: Namespace) -> int:
    """How many routes the kernel has."""
    return space.call(lambda: Path(FIB).read_bytes().count(b"\n")) - 1


def seen(space: Namespace, network: str) -> bool:
    """Whether the kernel has a route to a network."""
    address = ip_network(network).network_address.packed[::-1].hex().upper()
    return space.call(lambda: f"\t{address}\t".encode() in Path(FIB).read_bytes())


def put_block(store: Store, node: str, cidr: str) -> None:
    """What IPAM writes when a node claims a block; the affinity is the claim."""
    network = ip_network(cidr)
    block = Block(cidr=cidr, affinity=f"host:{node}", allocations=[None] * 64)
    pairs: dict[Key, Block | BlockAffinity] = {
        BlockKey(network): block,
        AffinityKey(node, network): BlockAffinity(state="confirmed"),
    }
    for key, value in pairs.items():
        store.put(path_of(key), codec.encode_value(key, value))


def claim(count: int) -> Json:
    """Blocks of one node, one at a time."""
    with ExitStack() as stack:
        world = stack.enter_context(cluster(2))
        n1, n2 = world.nodes.values()
        use_pool(world)
        for node in (n1, n2):
            world.register(node)
        world.peer_with_router()
        world.start_bird()
        felix = Felix(n1)
        stack.callback(felix.stop)
        felix.start()
        felix.wait()
        n1.start()
        n2.start()
        both = lambda: n1.up(ROUTER, n2.address) and n2.up(ROUTER, n1.address)  # noqa: E731
        wait_for(both, "sessions")
        # The connection is made at the first write: from the hub, where etcd is.
        stack.enter_context(world.hub.entered())
        store = Store(f"http://{ROUTER}:2379")
        samples: dict[str, list[float]] = {"felix": [], "bird": []}
        for turn in range(-1, count):
            cidr = f"10.{80 + turn // 200}.{turn % 200}.0/26"
            begun = time.perf_counter()
            put_block(store, n2.name, cidr)
            open_ = {"felix": n1.space, "bird": world.hub}
            while open_:
                for name in [name for name, space in open_.items() if seen(space, cidr)]:
                    del open_[name]
                    samples[name].append(time.perf_counter() - begun)
                if time.perf_counter() - begun > PATIENCE:
                    raise SystemExit(f"{cidr} is not known to {', '.join(open_)}")
                time.sleep(0.002)
            time.sleep(0.1)
    ours, peer = (figures(samples[name][1:]) for name in ("felix", "bird"))
    ratio = round(ours["p50_ms"] / peer["p50_ms"], 2)
    return {**ours, "goal_ms": 500, "into_bird": peer, "p50_ratio": ratio}


def learn(size: int) -> Json:
    """A router offers so many routes, to us and then to a BIRD in our place."""
    return _compare(size, _learn_ours(size), _learn_bird(size))


def _compare(size: int, ours: Json, peer: Json) -> Json:
    ratio = round(ours["seconds"] / peer["seconds"], 2)
    return {**ours, "goal_s": 2 if size == 10_000 else None, "bird": peer, "ratio": ratio}


def _offered(size: int) -> str:
    lines = " ".join(f"route {each} unreachable;" for each in prefixes(size))
    return f"protocol static offered {{ disabled yes; ipv4; {lines} }}"


def _learn_ours(size: int) -> Json:
    with ExitStack() as stack:
        world = stack.enter_context(cluster(1))
        (node,) = world.nodes.values()
        use_pool(world, "100.64.0.0/10")
        world.register(node)
        world.peer_with_router()
        world.start_bird(_offered(size))
        felix = Felix(node)
        stack.callback(felix.stop)
        felix.start()
        felix.wait()
        node.start()
        wait_for(lambda: node.up(ROUTER), "the session")
        assert node.process is not None
        assert felix.process is not None
        pids = {"bgp": [node.process.pid], "felix": [felix.process.pid], "exabgp": node.exabgp()}
        before = {name: cpu(each) for name, each in pids.items()}
        seconds = _enabled(world, node, size)
        used = {f"{name}_cpu_s": round(cpu(each) - before[name], 2) for name, each in pids.items()}
        memory = {f"{name}_pss_mib": resident(each) for name, each in pids.items()}
        return {"seconds": round(seconds, 2), **used, **memory}


def _learn_bird(size: int) -> Json:
    with ExitStack() as stack:
        world = stack.enter_context(cluster(1))
        (node,) = world.nodes.values()
        world.start_bird(_offered(size))
        text = f"""
router id {node.address};
protocol device {{}}
protocol kernel {{ ipv4 {{ export where source = RTS_BGP; }}; }}
protocol bgp hub {{ local {node.address} as 64512; neighbor {ROUTER} as 64500;
  connect delay time 1; ipv4 {{ import all; export none; }}; }}
"""
        learner = start_bird(node.space, world.directory, "learner", text)
        stack.callback(learner.kill)
        up = lambda: "Established" in world.birdc("show", "protocols", node.name)  # noqa: E731
        wait_for(up, "the session")
        before = cpu([learner.pid])
        seconds = _enabled(world, node, size)
        used = round(cpu([learner.pid]) - before, 2)
        return {
            "seconds": round(seconds, 2),
            "cpu_s": used,
            "pss_mib": resident([learner.pid]),
        }


def _enabled(world: World, node: Node, size: int) -> float:
    """The router begins to offer; seconds until the node's kernel has all."""
    have = rows(node.space)
    begun = time.perf_counter()
    world.birdc("enable", "offered")
    full = lambda: rows(node.space) >= have + size  # noqa: E731
    wait_for(full, f"{size} routes", limit=PATIENCE)
    return time.perf_counter() - begun


def start_bird(space: Namespace, folder: Path, name: str, text: str) -> subprocess.Popen[bytes]:
    """A BIRD with this configuration, below its own name; SystemExit when it refuses it."""
    (folder / f"{name}.conf").write_text(text)
    files = ("-c", str(folder / f"{name}.conf"), "-s", str(folder / f"{name}.ctl"))
    with (folder / f"{name}.log").open("ab") as log:
        bird = subprocess.Popen(space.command("bird", "-f", *files), stdout=log, stderr=log)
    control = folder / f"{name}.ctl"
    wait_for(lambda: control.exists() or bird.poll() is not None, f"BIRD {name}")
    if bird.poll() is not None:
        raise SystemExit(f"BIRD {name} ended: {(folder / f'{name}.log').read_text()}")
    return bird


def cpu(pids: list[int]) -> float:
    """Processor seconds of processes so far; those that ended meanwhile count for nothing."""
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def resident(pids: list[int]) -> float:
    """Proportional memory of processes together, MiB: pages that they share count once."""
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += int(text.split("\nPss:")[1].split()[0])
    return round(total / 1024, 1)
