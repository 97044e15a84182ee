"""What the simulated kernel's rules do with a packet that is forwarded: the first of a new flow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from tests.simulation.kernel.machine import Machine

_COMMENT = re.compile(r'-m comment --comment "[^"]*"\s*')
_ENDS = frozenset(("ACCEPT", "DROP", "REJECT"))


@dataclass
class Packet:
    """TCP to port 80."""

    source: str
    destination: str
    in_interface: str
    out_interface: str
    mark: int = 0


def allowed(machine: Machine, packet: Packet) -> bool:
    """Whether the packet passes the filter table's FORWARD chain."""
    return _walk(machine, "FORWARD", packet) != "DROP"


def _walk(machine: Machine, chain: str, packet: Packet) -> str:
    """`ACCEPT`, `DROP`, or empty where the chain decides nothing."""
    for rule in machine.chains.tables["filter"].get(chain, ()):
        target, goes = _fits(machine, _COMMENT.sub("", rule).split(), packet)
        if target in _ENDS:
            return "ACCEPT" if target == "ACCEPT" else "DROP"
        if target == "RETURN":
            return ""
        if target and target not in ("MARK", "NFLOG", "LOG", "CONNMARK"):
            found = _walk(machine, target, packet)
            if found or goes:
                return found
    return ""


def _fits(machine: Machine, words: list[str], packet: Packet) -> tuple[str, bool]:
    """The target of a rule that fits, and whether it is gone to for good; empty if it does not."""
    at, target, goes, mark = 0, "", False, ""
    negated = False
    while at < len(words):
        word, value = words[at], words[at + 1] if at + 1 < len(words) else ""
        holds = True
        match word:
            case "-m":
                pass
            case "!":
                negated, at = True, at + 1
                continue
            case "--in-interface":
                holds = _named(packet.in_interface, value)
            case "--out-interface":
                holds = _named(packet.out_interface, value)
            case "--mark":
                want, _, mask = value.partition("/")
                holds = packet.mark & int(mask, 0) == int(want, 0)
            case "--match-set":
                address = packet.source if words[at + 2] == "src" else packet.destination
                held = machine.sets.found.get(value)
                holds = held is not None and held.has(address)
                at += 1
            case "--ctstate":
                holds = "NEW" in value.split(",")
            case "-p":
                holds = value in ("6", "tcp")
            case "--source" | "--destination":
                address = packet.source if word == "--source" else packet.destination
                holds = IPv4Address(address) in IPv4Network(value)
            case "--destination-ports":
                holds = value == "80"
            case "--jump" | "--goto":
                target, goes = value, word == "--goto"
            case "--set-mark":
                mark = value
            case _:
                raise NotImplementedError(f"{word} of {words}")
        if holds == negated:
            return "", False
        negated = False
        at += 2
    if mark:
        value, _, mask = mark.partition("/")
        packet.mark = packet.mark & ~int(mask, 0) | int(value, 0)
    return target, goes


def _named(interface: str, wanted: str) -> bool:
    return interface.startswith(wanted[:-1]) if wanted.endswith("+") else interface == wanted
