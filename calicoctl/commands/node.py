"""`node status`: what the processes of this node say of themselves, without root.

Each process writes its status to a file with its time and process id; a file whose process
is gone is said to be old, never shown as the present. Tested in
`tests/calicoctl/test_node_status.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import click

from calicoctl import borders
from libcalico import status_file
from libcalico.errors import MuslinError

HEADINGS = ("PEER ADDRESS", "PEER TYPE", "STATE", "SINCE", "INFO")


@click.group("node")
def node() -> None:
    """Tell how this node is doing."""


@node.command("status")
def status() -> None:
    """Show whether the node's processes run, and the state of its BGP peers."""
    felix, bgp = status_file.read("felix"), status_file.read("bgp")
    if felix is None or not alive(felix):
        raise MuslinError(f"Calico process is not running.{_last_seen(felix, 'calico-felix')}")
    click.echo("Calico process is running.")
    if bgp is None or not alive(bgp):
        click.echo(f"The BGP backend process is not running.{_last_seen(bgp, 'calico-bgp')}")
        return
    click.echo(peers_text(bgp.get("peers", []), datetime.now(UTC)), nl=False)


def alive(found: Mapping[str, Any], proc: Path = Path("/proc")) -> bool:
    """Whether the process that wrote a status file still runs.

    A process id alone could be another program's by now: its name must be one of ours.
    """
    try:
        command = (proc / str(int(found["pid"])) / "cmdline").read_bytes()
    except (KeyError, ValueError, TypeError, OSError):
        return False
    return b"calico" in command


def _last_seen(found: Mapping[str, Any] | None, process: str) -> str:
    if found is None:
        return f" {process} has written no status yet."
    return f" {process} was last seen at {found.get('time', 'an unknown time')}."


def peers_text(peers: Sequence[Mapping[str, Any]], now: datetime) -> str:
    """Both families' tables, IPv6 only where a peer has it, as Calico prints them."""
    text = ""
    for version in (4, 6):
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


_A_DAY = datetime(2000, 1, 2) - datetime(2000, 1, 1)
