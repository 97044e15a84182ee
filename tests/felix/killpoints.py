"""The points at which felix is killed, in one table, and the felix that dies at one of them.

Felix itself knows nothing of this: there is no hook in what is shipped, so nothing can be switched
on there. This module starts felix with one of its functions wrapped: `before` kills the process
when that function is called, `after` when it has returned, `during` some milliseconds into it.

python -m tests.felix.killpoints POINT FOLDER

FOLDER/armed must exist for the point to count, FOLDER/reached is written just before the end.
A function that is renamed makes the start fail, and with it the test.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.felix.in_kernel import NFTABLES

When = Literal["before", "during", "after"]
Occasion = Literal["start", "more", "less"]
DURING_SECONDS = 0.004

# What is another function on each back end: on iptables, on nftables.
_ALIASES = {
    "Tables.commit": (
        "felix.dataplane.rules.iptables:IptablesTables.commit",
        "felix.dataplane.rules.nftables:NftTables.commit",
    ),
    "Table.commit": ("linux.iptables.table:Table.commit", "linux.nftables.ruleset:Ruleset.commit"),
    "Table.write": ("linux.iptables.table:Table._write", "linux.nftables.ruleset:Ruleset._commit"),
    "KernelSets.create": ("linux.ipset:IPSets.create", "linux.nftables.sets:NamedSets.create"),
    "KernelSets.add": ("linux.ipset:IPSets.add", "linux.nftables.sets:NamedSets.add"),
    "KernelSets.delete": ("linux.ipset:IPSets.delete", "linux.nftables.sets:NamedSets.delete"),
}
# What a small change is written by, on nftables.
_AT_ONCE = {"Tables.commit": "felix.dataplane.rules.nftables:NftTables.commit_now"}


@dataclass(frozen=True)
class Point:
    """`start`: between the start and being in sync; `more`, `less`: while things come and go."""

    occasion: Occasion
    when: When
    what: str

    @property
    def name(self) -> str:
        """How it is called on the command line and in the test's name."""
        return f"{self.occasion}-{self.when}-{self.what.rpartition(':')[2]}"

    def target(self, backend: str) -> str:
        """`module:Class.function` on this back end."""
        if backend == NFTABLES and self.occasion != "start" and self.what in _AT_ONCE:
            return _AT_ONCE[self.what]
        if self.what in _ALIASES:
            return _ALIASES[self.what][backend == NFTABLES]
        return self.what


def _points(occasion: Occasion, text: str) -> list[Point]:
    found = []
    for line in text.split("\n"):
        when, _, what = line.strip().partition(" ")
        if what:
            assert when in ("before", "during", "after"), when
            found.append(Point(occasion, when, what.strip()))  # type: ignore[arg-type]
    return found


POINTS = [
    *_points(
        "start",
        """
        before felix.agent:Agent.run
        after felix.node_server:NodeServer.start
        before felix.agent:Agent.apply_batch
        after felix.agent:Agent.apply_batch
        before felix.dataplane.rules.manager:RulesManager._open
        after felix.dataplane.rules.manager:RulesManager._open
        after felix.dataplane.rules.desired:DesiredRules.update
        before felix.dataplane.rules.ipsets:Sets.commit
        after felix.dataplane.rules.ipsets:Sets.commit
        before Tables.commit
        during Tables.commit
        after Table.commit
        after felix.dataplane.devices.interfaces:Interfaces.commit
        after felix.dataplane.routes.routes:RouteTable.commit
        after felix.dataplane.routes.in_force:InForce.settle
        after felix.agent:Agent._published
        """,
    ),
    *_points(
        "more",
        """
        before felix.agent:Agent.apply_batch
        after felix.dataplane.rules.desired:DesiredRules.update
        after KernelSets.create
        before KernelSets.add
        after KernelSets.add
        after felix.dataplane.rules.ipsets:Sets.commit
        before Table.write
        during Table.write
        after Table.write
        after Tables.commit
        before felix.dataplane.routes.routes:RouteTable._write
        after felix.dataplane.routes.routes:RouteTable._write
        after felix.node_server:NodeServer.publish
        after felix.reports.status:StatusFile.write
        """,
    ),
    *_points(
        "less",
        """
        after felix.agent:Agent.apply_batch
        after felix.dataplane.rules.desired:DesiredRules.update
        before KernelSets.delete
        after KernelSets.delete
        before Table.write
        during Table.write
        after Table.write
        after felix.dataplane.routes.routes:RouteTable._write
        before felix.dataplane.routes.conntrack_flush:ConntrackFlusher._run
        after felix.dataplane.routes.in_force:InForce.settle
        """,
    ),
]


def point(name: str) -> Point:
    """The point of this name."""
    return next(each for each in POINTS if each.name == name)


def _resolve(target: str) -> tuple[Any, str]:
    module, _, path = target.partition(":")
    owner: Any = importlib.import_module(module)
    *owners, function = path.split(".")
    for each in owners:
        owner = getattr(owner, each)
    return owner, function


def arm(target: str, when: When, folder: Path) -> None:
    """Wrap the function so that its next call ends this process, once FOLDER/armed exists."""
    owner, name = _resolve(target)
    function: Callable[..., Any] = getattr(owner, name)

    def end() -> None:
        (folder / "reached").write_text(target)
        os.kill(os.getpid(), signal.SIGKILL)

    def entered() -> bool:
        counts = (folder / "armed").exists()
        if counts and when == "before":
            end()
        if counts and when == "during":
            threading.Timer(DURING_SECONDS, end).start()
        return counts and when == "after"

    @functools.wraps(function)
    def plain(*arguments: Any, **named: Any) -> Any:
        ends = entered()
        result = function(*arguments, **named)
        if ends:
            end()
        return result

    @functools.wraps(function)
    async def waiting(*arguments: Any, **named: Any) -> Any:
        ends = entered()
        result = await function(*arguments, **named)
        if ends:
            end()
        return result

    setattr(owner, name, waiting if inspect.iscoroutinefunction(function) else plain)


def main() -> int:
    """Felix, until the point."""
    chosen, folder = point(sys.argv[1]), Path(sys.argv[2])
    native = os.environ.get("FELIX_NFTABLESMODE") == "Enabled"
    arm(chosen.target(NFTABLES if native else "nft"), chosen.when, folder)
    from felix.main import main as felix

    return felix([])


if __name__ == "__main__":
    sys.exit(main())
