"""Readers for the checks: etcd's keys, the kernel's tables, BIRD's tables."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import Any

from lab import proc, router
from lab.cluster import Lab
from lab.machine import Machine

Json = dict[str, Any]
RESOURCES = "/calico/resources/v3/projectcalico.org"
IPAM = "/calico/ipam/v2"
ROUTE_PROTOCOL = "109"
_COUNTERS = re.compile(r"\[\d+:\d+\]")


def etcd(lab: Lab, prefix: str) -> dict[str, Json]:
    """Keys below a prefix with their JSON values, as `etcdctl` gives them."""
    command = ["etcdctl", "get", "--prefix", prefix, "-w", "json"]
    answer = json.loads(lab.etcd.run(command).stdout)
    values = {}
    for entry in answer.get("kvs", []):
        key = base64.b64decode(entry["key"]).decode()
        text = base64.b64decode(entry.get("value", "")).decode()
        value = json.loads(text) if text.startswith("{") else {"text": text}
        values[key] = value
    return values


@dataclass(frozen=True)
class OwnedBlock:
    """A block and its node in etcd."""

    node: str
    cidr: str


def blocks(lab: Lab) -> list[OwnedBlock]:
    """Every confirmed IPv4 block affinity in etcd."""
    owned = []
    for key, value in etcd(lab, f"{IPAM}/host/").items():
        parts = key.removeprefix(f"{IPAM}/host/").split("/")
        if (
            len(parts) == 4
            and parts[1:3] == ["ipv4", "block"]
            and value.get("state") == "confirmed"
        ):
            owned.append(OwnedBlock(parts[0], parts[3].replace("-", "/")))
    return sorted(owned, key=lambda block: (block.node, block.cidr))


def in_use(lab: Lab) -> dict[str, int]:
    """block -> number of allocated addresses, by the block keys in etcd."""
    counts = {}
    for key, value in etcd(lab, f"{IPAM}/assignment/").items():
        used = [entry for entry in value.get("allocations", []) if entry is not None]
        counts[key.rpartition("/")[2].replace("-", "/")] = len(used)
    return counts


def routes(machine: Machine) -> list[Json]:
    """The node's main IPv4 table."""
    listed: list[Json] = json.loads(machine.run(["ip", "-j", "-d", "route", "show"]).stdout or "[]")
    return listed


def route_to(machine: Machine, prefix: str) -> Json | None:
    """The unicast route of exactly this prefix; None when the kernel has none."""
    for route in routes(machine):
        if route.get("dst") == prefix and route.get("type", "unicast") == "unicast":
            return route
    return None


def neighbours(lab: Lab) -> dict[str, str]:
    """node -> state of its session at the router."""
    return router.sessions(lab.router.run(["birdc", "show", "protocols"]).stdout)


def hold_times(lab: Lab) -> set[int]:
    """The hold times of the router's sessions, in seconds."""
    text = lab.router.run(["birdc", "show", "protocols", "all"]).stdout
    return {int(seconds) for seconds in re.findall(r"Hold timer: +[0-9.]+/(\d+)", text)}


def learned(lab: Lab) -> dict[str, list[tuple[str, str]]]:
    """prefix -> [(node, next hop)] that the router's BIRD learned by BGP and forwards by.

    A block comes from every node; that of its own node has the lowest MED and wins.
    """
    command = ["birdc", "show", "route", "primary", "where", "source", "=", "RTS_BGP"]
    return router.learned(lab.router.run(command).stdout)


def processes(machine: Machine, title: str) -> list[int]:
    """Processes of a machine that `ps` shows under a title.

    A child that is about to run another program still has its parent's title, and is left out.
    """
    pids = [pid for pid in machine.pids() if proc.command_of(pid).split(" ")[0] == title]
    return [pid for pid in pids if proc.parent_of(pid) not in (None, *pids)]


def tables(machine: Machine) -> dict[str, list[str]]:
    """The node's forwarding state as text, to compare two moments."""
    commands = {
        "ip route": ["ip", "route", "show", "table", "all"],
        "ip -6 route": ["ip", "-6", "route", "show", "table", "all"],
        "ip rule": ["ip", "rule", "show"],
        "ip neigh permanent": ["ip", "neigh", "show", "nud", "permanent"],
        "ip -o link": ["ip", "-o", "link", "show"],
        "iptables-save": ["iptables-save"],
        "ip6tables-save": ["ip6tables-save"],
        "ipset save": ["ipset", "save"],
    }
    return {name: normal(machine.run(command).stdout) for name, command in commands.items()}


def normal(text: str) -> list[str]:
    """Lines without what changes by itself: counters, comments with the time, lifetimes. Pure."""
    lines = (_COUNTERS.sub("", line).strip() for line in text.splitlines())
    return sorted(re.sub(r" expires \d+sec", "", line) for line in lines if line and line[0] != "#")


def differences(before: dict[str, list[str]], after: dict[str, list[str]]) -> list[str]:
    """The lines that are in only one of two dumps, with - and + as in diff(1). Pure."""
    lines = []
    for name in before:
        old, new = set(before[name]), set(after[name])
        lines += [f"{name}: - {line}" for line in sorted(old - new)]
        lines += [f"{name}: + {line}" for line in sorted(new - old)]
    return lines
