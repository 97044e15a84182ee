"""The state of this node as data, as Calico's text and tables, and as JSON.

Source: data model 6.5. Tested in `tests/calicoctl/test_node_status.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from calicoctl import borders
from calicoctl.node import bird, processes
from calicoctl.node.processes import Process
from libcalico import paths, status_file
from libcalico.errors import MuslinError

HEADINGS = ("PEER ADDRESS", "PEER TYPE", "STATE", "SINCE", "INFO")
FELIX = frozenset({"calico-felix", "calico-node"})
NO_SPEAKER = "The BGP backend process (BIRD) is not running."
_A_DAY = datetime(2000, 1, 2) - datetime(2000, 1, 1)


@dataclass(frozen=True, slots=True)
class NodeReport:
    """This node. `speaker`: `muslin`, `bird` (Calico's own) or empty; `notes` are lines that
    stand in place of a family's table."""

    node: str
    now: datetime
    felix: Process
    bgp: Process
    cni: Process
    speaker: str
    peers: Sequence[Mapping[str, Any]]
    notes: Mapping[int, str]

    @property
    def running(self) -> bool:
        """Whether the node's agent runs."""
        return self.felix.running


def gather() -> NodeReport:
    """Read the status files, and where there are none look at processes and BIRD's sockets."""
    now = datetime.now(UTC)
    felix, bgp, cni = (
        processes.judged(f"calico-{room}", status_file.read(room), now)
        for room in ("felix", "bgp", "cni")
    )
    if not felix.status:
        pid = processes.running_here(FELIX)
        felix = Process("calico-felix", pid is not None, {}, pid=pid)
    speaker, peers, notes = "", list[Mapping[str, Any]](), dict[int, str]()
    if bgp.running:
        speaker, peers = "muslin", list(bgp.status.get("peers", []))
    elif not bgp.status and felix.running:
        for version in (4, 6):
            try:
                peers += bird.peers(version)
                speaker = "bird"
            except bird.NoBird as why:
                notes[version] = f"INFO: {why}"
    return NodeReport(_node_name(cni), now, felix, bgp, cni, speaker, peers, notes)


def _node_name(cni: Process) -> str:
    try:
        return Path(paths.NODENAME).read_text().strip()
    except OSError:
        return str(cni.status.get("node", ""))


def as_text(found: NodeReport) -> str:
    """Calico's text; raises `MuslinError` when the agent does not run."""
    if not found.running:
        raise MuslinError(f"Calico process is not running. {found.felix.last_seen()}")
    text = "Calico process is running.\n"
    if not found.speaker:
        seen = f" {found.bgp.last_seen()}" if found.bgp.status else ""
        return f"{text}{NO_SPEAKER}{seen}\n"
    return text + peers_text(found.peers, found.now, found.notes)


def peers_text(
    peers: Sequence[Mapping[str, Any]], now: datetime, notes: Mapping[int, str] | None = None
) -> str:
    """A table for each family that has peers, as Calico prints them."""
    text = ""
    for version in (4, 6):
        if notes and version in notes:
            text += f"\n{notes[version]}\n"
            continue
        rows = [_row(peer, now) for peer in peers if _version(peer) == version]
        if rows:
            text += f"\nIPv{version} BGP status\n" + borders.render(HEADINGS, rows)
        else:
            text += f"\nIPv{version} BGP status\nNo IPv{version} peers found.\n"
    return text + "\n"


def _version(peer: Mapping[str, Any]) -> int:
    try:
        return ip_address(str(peer.get("address"))).version
    except ValueError:
        return 0


def _row(peer: Mapping[str, Any], now: datetime) -> list[str]:
    return [
        str(peer.get("address", "")),
        str(peer.get("type", "")),
        str(peer.get("state", "")),
        since(str(peer.get("since", "")), now),
        str(peer.get("info", "")),
    ]


def since(text: str, now: datetime) -> str:
    """A time as BIRD shows it: the time of today, the date of an earlier day."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    if moment.tzinfo is None:
        return text
    return moment.strftime("%H:%M:%S" if now - moment < _A_DAY else "%Y-%m-%d")


def as_json(found: NodeReport) -> str:
    """One object: `running`, `speaker`, `processes`, `peers`."""
    return json.dumps(
        {
            "node": found.node,
            "running": found.running,
            "speaker": found.speaker,
            "processes": {
                one.name: {
                    "running": one.running,
                    "pid": one.pid,
                    "seen": one.seen,
                    "version": one.status.get("version", ""),
                }
                for one in (found.felix, found.bgp, found.cni)
            },
            "peers": list(found.peers),
            "notes": list(found.notes.values()),
        },
        indent=2,
    )
