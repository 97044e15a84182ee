"""Which of the node's processes run: by the status files they write, else by their names.

Invariants:
  STAT-1  A status file of a process that is gone is said to be old, never shown as the present.

A status file names its process and the process-id namespace that the number belongs to. In our
own namespace the process is looked up; out of another container only the file's age tells. Where
there is no file, a process of Calico's own names counts
(docs/reference/data-model.md#calicoctl-node-status), if it is in our network namespace. Tested in
`tests/calicoctl/test_node_status.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

FRESH = 30.0
"""Seconds after which a status file of another container is old: three times what writers wait."""

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """One process: `status` is what its file says, `seen` when that was written."""

    name: str
    running: bool
    status: Mapping[str, object]
    seen: str = ""
    pid: int | None = None

    def objects(self, key: str) -> list[Mapping[str, object]]:
        """The objects of a list in the status file; empty where there is none."""
        items = self.status.get(key)
        return [one for one in items if isinstance(one, Mapping)] if isinstance(items, list) else []

    def last_seen(self) -> str:
        """A sentence for one that does not run."""
        if not self.status:
            return f"{self.name} has written no status yet."
        return f"{self.name} was last seen at {self.seen or 'an unknown time'}."


def judged(
    name: str, status: Mapping[str, object] | None, now: datetime, proc: Path = PROC
) -> Process:
    """The process behind a status file (`status` None: there is no file)."""
    if status is None:
        return Process(name, False, {})
    seen = str(status.get("time", ""))
    space = status.get("pid_namespace")
    ours = space is None or space == namespace(proc / "self" / "ns" / "pid")
    running = alive(status, proc) if ours else abs(age(seen, now)) <= FRESH
    pid = status.get("pid")
    return Process(name, running, status, seen, pid if isinstance(pid, int) else None)


def alive(status: Mapping[str, object], proc: Path = PROC) -> bool:
    """Whether the process that wrote a status file still runs.

    A process id alone could be another program's by now: its name must be one of ours.
    """
    pid = status.get("pid")
    if not isinstance(pid, int):
        return False
    try:
        command = (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return False
    return b"calico" in command


def namespace(path: Path) -> int | None:
    """The number of the namespace behind a link such as `/proc/self/ns/pid`."""
    try:
        return path.stat().st_ino
    except OSError:
        return None


def age(text: str, now: datetime) -> float:
    """Seconds since a time that a status file holds; for ever when it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return float("inf")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (now - moment).total_seconds()


def running_here(names: frozenset[str], proc: Path = PROC) -> int | None:
    """The id of a process of our network namespace with one of these names, None without.

    `-felix` as first argument counts as `calico-felix`: so Calico starts its own.
    """
    here = namespace(proc / "self" / "ns" / "net")
    try:
        entries = [entry for entry in proc.iterdir() if entry.name.isdigit()]
    except OSError:
        return None
    for entry in sorted(entries, key=lambda one: int(one.name)):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        title = os.path.basename(words[0].split(b" ")[0]).decode(errors="replace")
        named = title in names or ("calico-felix" in names and words[1:2] == [b"-felix"])
        # Without root the namespace of others cannot be read: they count as ours then.
        if named and namespace(entry / "ns" / "net") in (here, None):
            return int(entry.name)
    return None
