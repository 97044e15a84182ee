"""The state of this node as data, as Calico's text and tables, as JSON and YAML.

Source: docs/reference/data-model.md#calicoctl-node-status. Tested in
`tests/calicoctl/test_node_status.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

from calicoctl import borders
from calicoctl.node import bird, processes
from calicoctl.node.processes import Process
from libcalico.errors import MuslinError
from libcalico.process import paths, status_file

HEADINGS = ("PEER ADDRESS", "PEER TYPE", "STATE", "SINCE", "INFO")
WIDE = ("NODE", "AS", "RECEIVED", "REFUSED", "SENT", "GRACEFUL RESTART")
WITHOUT_BGP = ("vxlan", "none")
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
    peers: Sequence[Mapping[str, object]]
    notes: Mapping[int, str]

    @property
    def running(self) -> bool:
        """Whether the node's agent runs."""
        return self.felix.running

    @property
    def without_bgp(self) -> str:
        """The networking backend, if it is one that has no BGP; else empty."""
        backend = str(self.felix.status.get("networking", ""))
        return backend if backend in WITHOUT_BGP else ""

    @property
    def conditions(self) -> list[tuple[str, str, str]]:
        """What the processes that run say that an operator should know: (process, object, why)."""
        return [
            (one.name, str(each.get("object", "")), str(each.get("reason", "")))
            for one in (self.felix, self.bgp, self.cni)
            if one.running
            for each in one.objects("conditions")
        ]


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
    speaker, peers, notes = "", list[Mapping[str, object]](), dict[int, str]()
    if bgp.running:
        speaker, peers = "muslin", bgp.objects("peers")
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


def as_text(report: NodeReport, wide: bool = False) -> str:
    """Calico's text; raises `MuslinError` when the agent does not run.

    Below the tables stands why a session is down, where that is known; `wide` has more columns
    and everything else that an operator should know.
    """
    if not report.running:
        raise MuslinError(f"Calico process is not running. {report.felix.last_seen()}")
    text = "Calico process is running.\n"
    if report.without_bgp:
        text += (
            f"This node has no BGP (CALICO_NETWORKING_BACKEND={report.without_bgp}):"
            " its routes to other nodes come from the datastore.\n"
        )
    elif not report.speaker:
        seen = f" {report.bgp.last_seen()}" if report.bgp.status else ""
        text += f"{NO_SPEAKER}{seen}\n"
    else:
        text += peers_text(report.peers, report.now, report.notes, wide)
        text += "".join(f"{line}\n" for line in _troubles(report))
    if wide and report.conditions:
        text += "Conditions\n" + borders.render(("PROCESS", "OBJECT", "REASON"), report.conditions)
    return text


def _troubles(report: NodeReport) -> Iterator[str]:
    """Sessions that are down and why, peerings that are not held, and what holds for all."""
    for peer in report.peers:
        if peer.get("cause"):
            yield f"{peer['address']}: {peer['cause']}: {peer['seen']}; {peer['fix']}"
    for each in report.bgp.objects("refused"):
        yield f"{each.get('peer')} is not held: {each.get('reason')}"
    if report.bgp.status.get("draining"):
        yield "This node drains: others take its routes last (calicoctl node bgp undrain)."
    if report.speaker == "muslin" and report.bgp.status.get("start_complete") is False:
        yield "Graceful restart: waiting for the routes of the peers."


def peers_text(
    peers: Sequence[Mapping[str, object]],
    now: datetime,
    notes: Mapping[int, str] | None = None,
    wide: bool = False,
) -> str:
    """A table for each family that has peers, as Calico prints them."""
    text = ""
    headings = HEADINGS + (WIDE if wide else ())
    for version in (4, 6):
        if notes and version in notes:
            text += f"\n{notes[version]}\n"
            continue
        rows = [_row(peer, now, wide) for peer in peers if _version(peer) == version]
        if rows:
            text += f"\nIPv{version} BGP status\n" + borders.render(headings, rows)
        else:
            text += f"\nIPv{version} BGP status\nNo IPv{version} peers found.\n"
    return text + "\n"


def _version(peer: Mapping[str, object]) -> int:
    try:
        return ip_address(str(peer.get("address"))).version
    except ValueError:
        return 0


def _row(peer: Mapping[str, object], now: datetime, wide: bool) -> list[str]:
    row = [
        str(peer.get("address", "")),
        str(peer.get("type", "")),
        str(peer.get("state", "")),
        since(str(peer.get("since", "")), now),
        str(peer.get("info", "")),
    ]
    if wide:
        names = ("node", "asn", "received", "refused", "sent", "graceful_restart")
        row += [str(peer.get(name, "")) for name in names]
    return row


def since(text: str, now: datetime) -> str:
    """A time as BIRD shows it: the time of today, the date of an earlier day."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    if moment.tzinfo is None:
        return text
    return moment.strftime("%H:%M:%S" if now - moment < _A_DAY else "%Y-%m-%d")


def as_tree(report: NodeReport) -> dict[str, object]:
    """One object: `running`, `speaker`, `backend`, `processes`, `peers`, `refused`, ..."""
    return {
        "node": report.node,
        "running": report.running,
        "speaker": report.speaker,
        "backend": str(report.felix.status.get("networking", "")),
        "processes": {
            one.name: {
                "running": one.running,
                "pid": one.pid,
                "seen": one.seen,
                "version": one.status.get("version", ""),
            }
            for one in (report.felix, report.bgp, report.cni)
        },
        "peers": list(report.peers),
        "refused": report.bgp.objects("refused") if report.speaker else [],
        "draining": bool(report.speaker and report.bgp.status.get("draining")),
        "notes": list(report.notes.values()),
        "conditions": [
            {"process": process, "object": subject, "reason": reason}
            for process, subject, reason in report.conditions
        ],
    }


def as_json(report: NodeReport) -> str:
    """`as_tree` as JSON."""
    return json.dumps(as_tree(report), indent=2)
