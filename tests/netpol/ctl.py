"""A calicoctl that stays: the same commands, without starting a process for each.

`python -m tests.netpol.ctl` reads JSON lines `[[argument, ...], input]` and answers each with
`[exit code, output, errors]`. Every command goes through `calicoctl.main.run`, as on a command
line. Tested with the scenarios.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.machine import Machine

ROOT = Path(__file__).parents[2]


@dataclass
class Ctl:
    """The process on a node, as its user has it."""

    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, node: Machine) -> Ctl:
        """Start it on a node."""
        process = subprocess.Popen(
            node.command([sys.executable, "-m", "tests.netpol.ctl"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**node.environment(), "PYTHONPATH": str(ROOT)},
            bufsize=0,
            start_new_session=True,
        )
        return cls(process)

    def __call__(self, arguments: Sequence[str], given: str = "") -> str:
        """Run a command; its output, or AssertionError with what it said."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([list(arguments), given]).encode() + b"\n")
        line = self.process.stdout.readline()
        assert line, f"calicoctl ended: {self.process.poll()}"
        code, output, errors = json.loads(line)
        assert code == 0, f"calicoctl {' '.join(arguments)}: status {code}\n{output}{errors}"
        return str(output)

    def run(self, word: str, resources: Sequence[str]) -> None:
        """`calicoctl apply|delete` of resources."""
        if resources:
            self([word, "-f", "-"], "---\n".join(resources))

    def end(self) -> None:
        """The process ends with its input."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def command(arguments: list[str], given: str) -> tuple[int, str, str]:
    """Run one command line in this process."""
    from calicoctl.main import run

    streams = sys.stdin, sys.stdout, sys.stderr
    output, errors = io.StringIO(), io.StringIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO(given.encode()))
    sys.stdout, sys.stderr = output, errors
    try:
        code = run(arguments)
    except Exception:
        code = 1
        errors.write(traceback.format_exc())
    finally:
        sys.stdin, sys.stdout, sys.stderr = streams
    return code, output.getvalue(), errors.getvalue()


def main() -> None:
    """Run commands until the input ends."""
    for line in sys.stdin:
        print(json.dumps(command(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
