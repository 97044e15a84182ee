"""What `./run bench fanout --store kubernetes` measures: watches, memory, heartbeats, cold start.

Watchers are simulated, the API server, its etcd and every write are real. The CPU of a delivery is
that of the API server above what the same changes cost it without watchers.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tests.bench import _fanout_pods as pods
from tests.bench._fanout_api import (
    FELIX,
    MODES,
    POD_PATH,
    PODS_A_NODE,
    ApiWorld,
    Mode,
    api_world,
    each,
    followed,
    watch,
)
from tests.bench._fanout_filling import ask, connect
from tests.bench._fanout_lists import cold, served
from tests.bench._fanout_typha import NAMED, typha
from tests.bench._fanout_world import Json, Nodes, say

SMALL, FULL = (50, 200), (50, 200, 1000)
RATES = ((20, 96), (4, 32))
"""Pod changes a second, and how many: each writer makes as many starts as ends."""
MOST_CONNECTED = 200
"""Of more nodes the sockets of all watches are more than a process may have."""
LIMIT_S = 300.0
"""After which a rate is more than the machine carries."""
HEARTBEAT_S = 300
BEATS = 40
OWED = 5
"""Events that a watcher may be owed: the API server ends a watch that has not taken ten."""


def idle(place: ApiWorld, changes: int, rate: float) -> Json:
    """What the changes cost without watchers."""
    before = place.used()
    place.write(changes, rate)
    after = place.used()
    return {
        "server_ms_per_change": each(before, after, "server_cpu_s", changes, 1e3),
        "etcd_ms_per_change": each(before, after, "etcd_cpu_s", changes, 1e3),
    }


def follow(place: ApiWorld, mode: Mode, changes: int, rate: float, unwatched: Json) -> Json:
    """One watcher for each node, told of changes at a rate."""
    count = place.size
    memory = place.used()["server_rss_mib"]
    nodes = place.nodes([watch(POD_PATH, place.revision(), mode)])
    standing = nodes.open(count, jitter_ms=count * 2)
    nodes.ask("mark")
    before = place.used()
    written = place.write(changes, rate)
    wanted = changes // 2 * sum(mode.told)
    # The API ends the watch of who reads too slowly; a real one would begin anew.
    late = nodes.until(wanted, LIMIT_S, lost_too=True)
    after, came = place.used(), nodes.report()
    place.end()
    idle_s = unwatched["server_ms_per_change"] * changes / 1e3
    used_s = after["server_cpu_s"] - before["server_cpu_s"]
    return {
        "us_per_event": round((used_s - idle_s) / came["events"] * 1e6, 1),
        "us_per_change": round((used_s - idle_s) / count / changes * 1e6, 1),
        "bytes_per_event": round(came["bytes"] / came["events"]),
        "bytes_per_change": round(came["bytes"] / count / changes),
        "etcd_ms_per_change": each(before, after, "etcd_cpu_s", changes, 1e3),
        "changes_a_second": round(changes / written, 1),
        "p50_ms": came["p50_ms"],
        "p99_ms": came["p99_ms"],
        "last_s": round(late, 1),
        "all_stand_s": round(standing, 1),
        "server_rss_mib": after["server_rss_mib"],
        "more_rss_mib": after["server_rss_mib"] - memory,
        "lost": came["lost"],
    }


def own(place: ApiWorld, changes: int, rate: float, unwatched: Json) -> Json:
    """What a watch of each node's own pods costs, which a node needs beside metadata of all."""
    count = place.size
    fields = (f"spec.nodeName={pods.node(number)}" for number in range(count))
    revision = place.revision()
    nodes = place.nodes([watch(POD_PATH, revision, Mode(fields=one)) for one in fields])
    nodes.open(count, jitter_ms=count * 2)
    nodes.ask("mark")
    before = place.used()
    place.write(changes, rate)
    start, end = pods.EVENTS
    came = in_all(nodes, changes // 2 * (start - 1 + end))
    used_s = place.used()["server_cpu_s"] - before["server_cpu_s"]
    place.end()
    more_s = used_s - unwatched["server_ms_per_change"] * changes / 1e3
    return {
        "us_per_change": round(more_s / count / changes * 1e6, 1),
        "bytes_per_change": round(came["bytes"] / count / changes),
        "events": came["events"],
        "lost": came["lost"],
    }


def in_all(nodes: Nodes, events: int) -> Json:
    """What came, when all nodes together have so many events. Raises SystemExit."""
    limit = time.monotonic() + LIMIT_S
    while (came := nodes.report())["events"] < events:
        if time.monotonic() > limit:
            raise SystemExit(f"{came['events']} of {events} events came in {LIMIT_S:g} s")
        time.sleep(0.05)
    return came


def saturation(row: Json, nodes: int, cores: int, server_ms: float) -> float:
    """Pod changes a second with which the API server fills so many cores. Pure."""
    one_s = row["us_per_change"] * nodes / 1e6 + server_ms / 1e3
    return float(round(cores / one_s, 1))


def connections(place: ApiWorld, nodes: int) -> Json:
    """Memory and CPU of all watches of so many felixes, each a connection, as felix has them."""
    feeds = [one for one in followed() if served(place, one[0])]
    before = place.used()
    requests = [watch(path, place.revision(path), Mode(), query) for path, query in feeds]
    made = place.nodes(requests)
    seconds = made.open(nodes * len(feeds), jitter_ms=nodes * len(feeds))
    after = place.used()
    place.end()
    return {
        "watches_of_a_node": len(feeds),
        "kib_per_watch": round(
            (after["server_rss_mib"] - before["server_rss_mib"]) * 1024 / nodes / len(feeds)
        ),
        "server_cpu_ms_per_node": each(before, after, "server_cpu_s", nodes, 1e3),
        "all_stand_s": round(seconds, 1),
    }


def heartbeats(place: ApiWorld, mode: Mode) -> Json:
    """What the reports of the kubelets of all nodes cost who watches the nodes."""
    path, count = "/api/v1/nodes", place.size
    with closing(connect(place.api)) as line:
        before = place.used()
        for number in range(BEATS):
            ask(line, pods.heartbeat(number % count))
        idle_s = place.used()["server_cpu_s"] - before["server_cpu_s"]
        nodes = place.nodes([watch(path, place.revision(path), mode)])
        nodes.open(count, jitter_ms=count * 2)
        nodes.ask("mark")
        before = place.used()
        for number in range(BEATS):
            ask(line, pods.heartbeat(number % count))
            if number % OWED == OWED - 1:
                nodes.until(number + 1, LIMIT_S)
        nodes.until(BEATS, LIMIT_S)
    used_s = place.used()["server_cpu_s"] - before["server_cpu_s"]
    came = nodes.report()
    place.end()
    size = came["bytes"] / came["events"]
    return {
        "us_per_event": round((used_s - idle_s) / came["events"] * 1e6, 1),
        "bytes_per_event": round(size),
        "events_a_second_of_5000": round(5000 / HEARTBEAT_S, 1),
        "mb_a_second_of_5000": round(5000 * 5000 / HEARTBEAT_S * size / 1e6),
    }


def watches(place: ApiWorld, rate: int, modes: list[str], changes: int) -> Json:
    """All modes beside each other."""
    unwatched = idle(place, changes, rate)
    found: Json = {"unwatched": unwatched}
    for name in modes:
        say(f"  {place.size} nodes, {rate} changes a second, {name}")
        row = follow(place, MODES[name], changes, rate, unwatched)
        row["fills_two_cores_at"] = saturation(
            row, place.size, 2, unwatched["server_ms_per_change"]
        )
        found[name] = row
        say(f"    {row}")
    say("  each its own pods")
    found["own pods"] = own(place, changes, rate, unwatched)
    if "whole" in found:
        whole = found["whole"]["bytes_per_change"]
        for name in modes:
            found[name]["of_whole"] = round(found[name]["bytes_per_change"] / whole, 2)
    return found


def measure(
    parts: list[str], full: bool, sizes: list[int] | None = None, modes: list[str] | None = None
) -> Json:
    """The parts asked for, at their sizes."""
    results: Json = {"felix asks for pods": FELIX}
    with tempfile.TemporaryDirectory(prefix="muslin-bench-") as folder:
        for nodes in sizes or (FULL if full else SMALL):
            say(f"a cluster of {nodes} nodes, {nodes * PODS_A_NODE} pods")
            with api_world(Path(folder), nodes) as place:
                for name, found in _of_size(place, Path(folder), parts, modes or list(MODES)):
                    size = found.pop("size")
                    results.setdefault(name, {})[size] = found
                    if name == "watch" and FELIX in found:
                        results.setdefault("felix", {})[size] = found[FELIX]
    return results


def _of_size(
    place: ApiWorld, folder: Path, parts: list[str], modes: list[str]
) -> Iterator[tuple[str, Json]]:
    size = str(place.size)
    if "cold" in parts:
        yield "cold", {"size": size, **cold(place)}
    if "watch" in parts:
        for rate, changes in RATES:
            found = watches(place, rate, modes, changes)
            yield "watch", {"size": f"{size}x{rate}", **found}
    if "heartbeats" in parts:
        for name in ("whole", "metadata"):
            say(f"  {size} nodes' heartbeats, {name}")
            yield "heartbeats", {"size": f"{size} {name}", **heartbeats(place, MODES[name])}
    if "connections" in parts:
        say("  all watches of felix")
        most = min(place.size, MOST_CONNECTED)
        yield "connections", {"size": str(most), **connections(place, most)}
    if "typha" in parts and NAMED in os.environ:
        rate, changes = RATES[0]
        say("  Typha")
        found = typha(place, folder, changes, rate, idle(place, changes, rate))
        yield "typha", {"size": f"{size}x{rate}", **found}
