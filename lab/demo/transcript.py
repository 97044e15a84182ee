"""Evidence: what was run, what it said, and the sentence that a check holds it to."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from lab import proc
from lab.machine import Machine
from lab.pods import Pod


class CheckFailed(Exception):
    """A check's expectation did not hold; the text says which and what was found."""


def expect(condition: object, sentence: str) -> None:
    """CheckFailed with `sentence` unless the condition holds."""
    if not condition:
        raise CheckFailed(sentence)


class Transcript:
    """Lines of one check, kept for the report and written on as they come."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        """A sentence (or several lines) of the story."""
        self.lines.append(text)
        self._write(text)

    def show(
        self,
        machine: Machine,
        command: Sequence[str],
        *,
        pod: Pod | None = None,
        stdin: str | None = None,
        check: bool = True,
        timeout: float = proc.PATIENCE,
    ) -> str:
        """Run a command on a machine, or in a pod of it, and put both on record."""
        done = machine.run(
            command,
            netns=pod.netns if pod else None,
            stdin=None if stdin is None else stdin.encode(),
            check=False,
            timeout=timeout,
        )
        place = f"{pod.title}@{machine.name}" if pod else machine.name
        given = f" <<EOF\n{stdin.strip()}\nEOF" if stdin else ""
        output = (done.stdout + done.stderr).rstrip()
        self.note(f"{place}$ {shlex.join(command)}{given}\n{output}".rstrip())
        expect(not check or done.returncode == 0, f"the last command ended with {done.returncode}")
        return done.stdout
