"""The watch of a node, run here or by a command that leads there (ssh, kubectl exec, nsenter).

The node's program takes `send` and `stop` on its standard input and tells lines of JSON; when this
program ends in any way, its input ends, and the watch with it.
Tested in tests/calicoctl/test_tracing_nodes.py.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from calicoctl.node import program
from libcalico import parsing
from libcalico.errors import InvalidValue, MuslinError
from libcalico.local.packet_trace import End, Line, Question, decode
from libcalico.process import paths

READY_WITHIN = 60.0
"""Seconds for a node's watch to stand: the command may have to log in first."""
END_WITHIN = 30.0
_LINE_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class Bounds:
    """What bounds a watch, and what its attempt is."""

    count: int = 2000
    seconds: float = 30.0
    size: int = 0
    timeout: float = 5.0


@dataclass
class NodeWatch:
    """A running watch. `lines` grows; `changed` is set when it does."""

    node: str
    process: asyncio.subprocess.Process
    changed: asyncio.Event
    lines: list[Line] = field(default_factory=list)
    reading: asyncio.Task[None] | None = None
    failure: str = ""

    async def read(self) -> None:
        """Take lines until the program ends."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        try:
            async for text in self.process.stdout:
                if text.strip():
                    self.lines.append(decode(text, f"node {self.node}"))
                    self.changed.set()
        except (MuslinError, ValueError) as error:
            self.failure = str(error)
        said = (await self.process.stderr.read()).decode(errors="replace").strip()
        status = await self.process.wait()
        if not any(isinstance(line, End) for line in self.lines):
            last = said.splitlines()[-1] if said else f"status {status}"
            self.failure = self.failure or f"node {self.node}: {last}"
        self.changed.set()

    def has(self, kind: type[Line]) -> bool:
        """Whether such a line came."""
        return any(isinstance(line, kind) for line in self.lines)

    @property
    def ended(self) -> bool:
        """Whether nothing more comes."""
        return self.reading is not None and self.reading.done()

    def command(self, word: str) -> None:
        """Tell it `send` or `stop`; one that has ended takes nothing."""
        stdin = self.process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(word.encode() + b"\n")


def own_node() -> str:
    """The node that this machine is, by the file that its start left; empty where it is none."""
    return parsing.text_of(paths.NODENAME).strip()


def ways(via: Sequence[str]) -> dict[str, list[str]]:
    """The texts NODE=COMMAND as words by node. Raises InvalidValue."""
    by_node: dict[str, list[str]] = {}
    for text in via:
        node, equals, command = text.partition("=")
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise InvalidValue(
                "--via", text, f"NODE=COMMAND, quoted as in a shell: {error}"
            ) from None
        if not equals or not node or not words:
            raise InvalidValue("--via", text, "NODE=COMMAND, such as node2='ssh root@node2'")
        by_node[node] = words
    return by_node


def command_for(node: str, via: Mapping[str, Sequence[str]], here: str) -> list[str] | None:
    """The words that run a node's program; None where no way leads there."""
    if node in via:
        return [*via[node], program.NAME]
    if node != here:
        return None
    path = program.find()
    return None if path is None else [path]


def arguments(question: Question, bounds: Bounds) -> list[str]:
    """The words after the program's name."""
    return [
        "trace",
        question.source,
        question.destination,
        f"--protocol={question.protocol}",
        f"--port={question.port}",
        f"--source-interface={question.source_interface}",
        f"--destination-interface={question.destination_interface}",
        f"--count={bounds.count}",
        f"--seconds={bounds.seconds:g}",
        f"--size={bounds.size}",
        f"--timeout={bounds.timeout:g}",
        "--attended",
    ]


async def start(
    node: str,
    words: Sequence[str],
    changed: asyncio.Event,
    begin: Callable[..., asyncio.Task[None]],
) -> NodeWatch:
    """Run a watch; `begin` starts the task that reads it. Raises MuslinError."""
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE_LIMIT,
            env=dict(os.environ),
        )
    except OSError as error:
        raise MuslinError(f"node {node}: {words[0]} cannot be run: {error.strerror}") from None
    watch = NodeWatch(node, process, changed)
    watch.reading = begin(watch.read(), f"trace of {node}")
    return watch
