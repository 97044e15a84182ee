"""From Calico: a node that it ran is taken over by us under traffic, and given back again.

    node1 10.99.1.1, ours          ---- one rack, one etcd ----          node2 10.99.1.2, Calico's
      client, stranger                                                     web (only clients), db

The commands are those of docs/migration/from-calico.md. What was sent and lost is counted all the
while in both directions, and that `stranger` reaches `web` at no moment is counted in web itself.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lab import agents, pods, proc, stream
from lab.demo import look
from libcalico.process import paths
from tests.migration import documents, guide, rules
from tests.migration.conftest import CALICOS, OURS, Mixed
from tests.support.patience import HANG

GUIDE = "from-calico.md"
FORBIDDEN = 9000
NEW = "10.65.166."


@contextmanager
def nothing_lost(made: Mixed, what: str) -> Iterator[None]:
    """Traffic of `client` and `web` both ways loses nothing, and `stranger` comes through never."""
    web, stranger = made.pods["web"], made.pods["stranger"]
    counter = stream.begin(made.machine(web.node), web.netns, "count", str(FORBIDDEN))
    words = ("send", web.address, str(FORBIDDEN), "100")
    sender = stream.begin(made.machine(stranger.node), stranger.netns, *words)
    began = time.monotonic()
    try:
        with made.traffic("client", "web") as seen:
            yield
    finally:
        sent, counted = sender.finish(), counter.finish()
    print(f"{what}: {time.monotonic() - began:.1f} s", *seen.lines, sent, counted, file=sys.stderr)
    assert (seen.lost, seen.stream_error) == (0, ""), seen.lines
    assert sent["sent"] > 20, sent
    assert (counted["arrived"], counted["lost"]) == ({}, 0), "the policy had a hole"


def established(made: Mixed) -> bool:
    """Both ends of the session between node1 and BIRD say so."""
    address = made.theirs.address
    lines = [line for line in made.theirs.sessions().splitlines() if line.startswith("Mesh_")]
    return bool(lines) and all("Established" in line for line in lines) and (
        made.sessions(OURS).get(address) == "Established"
    )  # fmt: skip


def chains(made: Mixed, node: str) -> set[str]:
    """The chains of a node that do not depend on its pods and policies, and its orphans."""
    lines = made.text(node, "iptables-save").splitlines()
    own = ("cali-pi", "cali-po", "cali-pri", "cali-pro", "cali-fw-cali", "cali-tw-cali")
    found = {line.split()[0] for line in lines if line.startswith(":cali-")}
    dead = f":{rules.ORPHANS[0]}"
    return {name for name in found if not name[1:].startswith(own) or name == dead}


def unknown_to_calico(made: Mixed) -> list[str]:
    """What we have in the kernel that its felix would not clean up as its own, by name."""
    rules_ = made.text(CALICOS, "iptables-save").splitlines()
    found = [line for line in rules_ if line.startswith("-A") and "cali" not in line]
    found += [line for line in rules_ if line.startswith(":") and " - [" in line]
    sets = made.text(CALICOS, "ipset", "list", "-n").split()
    return [line for line in found if "cali-" not in line] + [
        name for name in sets if not name.startswith("cali")
    ]


def take_over(made: Mixed, number: int = signal.SIGKILL) -> None:
    """What the new DaemonSet does on the node: our plugins and list, then our agents."""
    machine = made.machine(CALICOS)
    made.theirs.stop(number)
    made.install(machine, {})
    settings = {"FELIX_ROUTEREFRESHINTERVAL": "2"}
    agents.wait(machine, agents.start(machine, made.lab.plan, settings), timeout=HANG)


def denied(made: Mixed) -> None:
    """Who is no client does not reach web; who is, does; the others reach each other."""
    names = ("client", "web", "db")
    made.connected([names[0], names[1]])
    made.connected([names[0], names[2]])
    assert not pods.ping(made.lab, made.pods["stranger"], made.pods["web"].address, wait=0.5)
    assert not pods.ping(made.lab, made.pods["db"], made.pods["web"].address, wait=0.5)


@pytest.mark.promise("F-38")
def test_both_kinds_work_in_one_cluster(mixed: Mixed) -> None:
    """Node1 of ours and node2 of Calico: session, routes by each other, pods, policy."""
    mixed.eventually(lambda: established(mixed), "the session")
    client = mixed.pods["client"]
    mixed.way_becomes(OURS, documents.BLOCK, (mixed.theirs.address, "eth0"))
    mixed.way_becomes(CALICOS, mixed.block(client), (mixed.theirs.peer, "eth0"))
    assert "proto bird" in mixed.text(CALICOS, "ip", "route", "show", mixed.block(client))
    denied(mixed)


def test_a_node_is_taken_over(mixed: Mixed) -> None:
    """0 packets lost, policy without a hole, nothing of Calico's is left, nobody's data changed."""
    before = look.etcd(mixed.lab, f"{documents.RESOURCES}/workloadendpoints/default/{CALICOS}")
    block = f"{documents.IPAM}/assignment/ipv4/block/{documents.BLOCK.replace('/', '-')}"
    (held,) = look.etcd(mixed.lab, block).values()
    guide.follow(mixed.machine(OURS), GUIDE, "Before")
    with nothing_lost(mixed, "taken over"):
        take_over(mixed)
        mixed.eventually(
            lambda: not guide.follow(mixed.machine(CALICOS), GUIDE, "What is left").strip(),
            "no route of Calico's is left",
        )
        mixed.sessions_are(CALICOS, mixed.theirs.peer)
        mixed.sessions_are(OURS, mixed.theirs.address)
        mixed.eventually(lambda: chains(mixed, CALICOS) == chains(mixed, OURS), "our chains alone")
        mixed.eventually(
            lambda: rules.ORPHANS[1] not in mixed.text(CALICOS, "ipset", "list", "-n"),
            "no set of Calico's is left",
        )
    routes = mixed.text(CALICOS, "ip", "route", "show", "proto", "109")
    for name in ("web", "db"):
        assert f"{mixed.pods[name].address} dev" in routes
    assert not mixed.text(CALICOS, "ip", "route", "show", "proto", "boot", "root", documents.POOL)
    assert f"blackhole {documents.BLOCK}" in routes
    denied(mixed)
    assert before == look.etcd(
        mixed.lab, f"{documents.RESOURCES}/workloadendpoints/default/{CALICOS}"
    )
    (now,) = look.etcd(mixed.lab, block).values()
    assert now["allocations"] == held["allocations"]
    plugin = mixed.machine(CALICOS).path(paths.CNI_BIN / "calico").read_bytes()
    assert b"Calico was asked" not in plugin


def test_pods_come_and_go_as_if_nothing_had_been(mixed: Mixed) -> None:
    """A new pod has an address of the old block; DEL of Calico's pod gives everything back."""
    new = mixed.add("new", CALICOS)
    assert new.address.startswith(NEW)
    assert new.address not in {mixed.pods[name].address for name in ("web", "db")}
    mixed.connected(["new", "client"])
    db = mixed.pods.pop("db")
    interface = mixed.theirs.interface(db)
    mixed.theirs.pods.pop("db")
    pods.remove(mixed.lab, db)
    assert interface not in mixed.text(CALICOS, "ip", "-o", "link")
    handle = f"{documents.IPAM}/handle/{documents.NETWORK}.{db.container_id}"
    assert not look.etcd(mixed.lab, handle)
    endpoints = look.etcd(mixed.lab, f"{documents.RESOURCES}/workloadendpoints/default/{CALICOS}")
    assert not [key for key in endpoints if "-db-" in key]
    mixed.eventually(lambda: db.address not in mixed.text(CALICOS, "ip", "route"), "its route goes")


def test_the_way_back(mixed: Mixed) -> None:
    """Calico's programs take the node again, 0 packets lost; our number is flushed by hand."""
    machine = mixed.machine(CALICOS)
    calico = mixed.theirs
    assert not unknown_to_calico(mixed)
    for name in [name for name in mixed.pods if name == "new"]:
        pods.remove(mixed.lab, mixed.pods.pop(name))
    with nothing_lost(mixed, "given back"):
        for pid in look.processes(machine, "calico-node"):
            proc.run(["kill", str(pid)])
        proc.wait_until(
            lambda: (
                not look.processes(machine, "calico-felix")
                and not look.processes(machine, "calico-bgp")
            ),
            "our agents have ended",
            timeout=120,
        )
        calico.install()
        calico.start([mixed.pods["client"].address])
        mixed.eventually(lambda: established(mixed), "the session")
        block = mixed.block(mixed.pods["client"])
        mixed.eventually(
            lambda: "proto bird" in mixed.text(CALICOS, "ip", "route", "show", block),
            "BIRD's route",
        )
        guide.follow(machine, GUIDE, "Back")
    assert not mixed.text(CALICOS, "ip", "route", "show", "proto", "109")
    answer = json.loads(
        mixed.text(CALICOS, "ip", "-j", "route", "show", calico.pods["web"].address)
    )
    assert [route.get("protocol", "boot") for route in answer] == ["boot"]
    mixed.connected(["client", "web"])


def test_a_goodbye_costs_packets(mixed: Mixed) -> None:
    """Why the guide kills BIRD: one that ends by itself takes its routes along until ours is up."""
    with mixed.traffic("client", "web") as seen:
        take_over(mixed, signal.SIGTERM)
        mixed.sessions_are(OURS, mixed.theirs.address)
        mixed.eventually(
            lambda: pods.ping(mixed.lab, mixed.pods["client"], mixed.pods["web"].address), "pings"
        )
    print("with a goodbye:", *seen.lines, file=sys.stderr)
    assert 0 < seen.lost < seen.sent
