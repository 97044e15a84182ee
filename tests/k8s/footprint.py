"""What a network may leave on a node: its kernel's state and the files, as text that compares.

What the kernel itself counts or draws is left out, and so are the tables and base chains of
iptables without rules: iptables-nft makes them when it looks, and no packet fares otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tests.k8s.node import Node

FOLDERS = ("/etc/cni", "/opt/cni/bin", "/var/run/calico", "/var/lib/calico", "/etc/calico")
FILES = "find {folders} ! -type d -printf '%y %p\\n' -exec sha256sum {{}} + 2>/dev/null; true"
IPTABLES = [
    f"{program}-{variant}-save"
    for program in ("iptables", "ip6tables")
    for variant in ("nft", "legacy")
]
FALLBACK = ("tunl0", "sit0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0")
"""Devices that come with a kernel module."""
OF_IPTABLES = re.compile(r"table ip6? (raw|mangle|nat|filter|security)$")
COUNTED = re.compile(r"net\.netfilter\.nf_conntrack_(count|buckets)|net\.ipv4\.tcp_fastopen_key")
Lines = Mapping[str, list[str]]


def of(node: Node) -> dict[str, list[str]]:
    """Rules, sets, routes, links, addresses, sysctls of the network, and files with their hash."""
    found = {name: _rules(_said(node, name)) for name in IPTABLES}
    tables = _said(node, "nft list tables")
    found["nft tables"] = [line for line in tables if not OF_IPTABLES.match(line)]
    found["ipset"] = _said(node, "ipset save")
    for version in ("-4", "-6"):
        found[f"routes {version}"] = _own(_said(node, f"ip {version} route show table all"))
        found[f"rules {version}"] = _said(node, f"ip {version} rule")
    found["addresses"] = _own(_said(node, "ip -o addr"), lambda line: _address(line))
    found["links"] = _own(_said(node, "ip -br link"), lambda line: line.split("@")[0].split()[0])
    found["sysctls"] = _own(_said(node, "sysctl -a -r '^net[.]' 2>/dev/null"))
    found["files"] = _said(node, FILES.format(folders=" ".join(FOLDERS)))
    return {name: sorted(lines) for name, lines in found.items()}


def differences(before: Lines, after: Lines) -> dict[str, list[str]]:
    """What came (+) and what went (-), by kind; empty where nothing did. Pure."""
    found = {
        kind: [f"+{line}" for line in sorted(set(after[kind]) - set(before[kind]))]
        + [f"-{line}" for line in sorted(set(before[kind]) - set(after[kind]))]
        for kind in before
    }
    return {kind: lines for kind, lines in found.items() if lines}


def _said(node: Node, command: str) -> list[str]:
    return node.run("sh", "-c", command, check=False).stdout.splitlines()


def _rules(lines: list[str]) -> list[str]:
    table, found = "", []
    for line in lines:
        if line.startswith("*"):
            table = line
        elif line.startswith("-A ") or (line.startswith(":") and line.split()[1] == "-"):
            # A chain of somebody's own, by its name; a base chain has a policy instead of the dash.
            found.append(f"{table} {line.split()[0] if line[0] == ':' else line}")
    return found


def _address(line: str) -> str:
    return " ".join(line.split()[1:4])


def _own(lines: list[str], form: Callable[[str], str] = str) -> list[str]:
    """Without link-local addresses, which follow a drawn MAC, and what the kernel counts."""
    return [
        form(line)
        for line in lines
        if not any(word in line for word in ("fe80:", "ff00::", *FALLBACK))
        and not COUNTED.match(line)
    ]
