"""The host's own tables as a lab or test may not change them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

_LINK = re.compile(r"(mgmt|fabric|rack\d+|to-.+|cali.*|(vxlan|wireguard|wg)[-.].*cali.*)")


def of_a_lab(link: str) -> bool:
    """Whether a link has a name that a lab or an agent gives. Other programs make links as well."""
    return bool(_LINK.fullmatch(link.strip().partition("@")[0]))


def links() -> list[str]:
    """The names of the host's links."""
    return [line.split(":")[1].strip() for line in output("ip", "-o", "link")]


def output(*command: str) -> list[str]:
    """Sorted lines of a command's output, without counters and the time."""
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = (re.sub(r"\[\d+:\d+\]", "", line) for line in done.stdout.splitlines())
    return sorted(line for line in lines if not line.startswith("#"))


def run_files() -> list[str]:
    """Every path below /run except what package and lock tools of others leave."""
    found = []
    for directory, names, files in os.walk("/run"):
        found += [os.path.join(directory, name) for name in (*names, *files)]
    return sorted(found)


def snapshot(relevant: Callable[[str], bool] = lambda _: True) -> dict[str, list[str]]:
    """Network namespaces, links, rules, sets and /run of the host, `relevant` lines only."""
    tables = {
        "ip netns": output("ip", "netns"),
        "ip link": links(),
        "iptables-save": output("iptables-save"),
        "ipset list": output("ipset", "list", "-name"),
        "/run": run_files(),
        "mounts": [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()],
    }
    return {name: [line for line in lines if relevant(line)] for name, lines in tables.items()}
