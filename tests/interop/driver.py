"""A library of Calico's behind a pipe: one JSON command a line, one JSON answer a line."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any


class Refusal(Exception):
    """What the library said no with."""


class Driver:
    """A started driver."""

    def __init__(
        self, program: str, environment: Mapping[str, str], arguments: Sequence[str] = ()
    ) -> None:
        self._process = subprocess.Popen(
            [program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
            text=True,
        )

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def __call__(self, op: str, **arguments: Any) -> dict[str, Any]:
        """Run one command; raises `Refusal` with the library's error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        if answer.get("error"):
            raise Refusal(answer["error"])
        return answer

    async def soon(self, op: str, **arguments: Any) -> dict[str, Any]:
        """The same, without holding up the event loop."""
        return await asyncio.to_thread(lambda: self(op, **arguments))
