"""Programs whose output goes into an archive: no shell, a time limit, output as it came.

Tested in tests/calicoctl/test_diags.py.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

LIMIT = 20.0
_SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Output:
    """What a program said. `error` is empty when it ended with status 0."""

    text: str
    error: str = ""


def find(name: str) -> str | None:
    """The path of a program, None where it is not installed."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SYSTEM}")


async def run(words: Sequence[str], limit: float = LIMIT) -> Output:
    """Run a program; its failure is in the output and raises nothing."""
    path = find(words[0])
    if path is None:
        return Output("", f"{words[0]} is not installed")
    try:
        process = await asyncio.create_subprocess_exec(
            path,
            *words[1:],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C"},
        )
    except OSError as error:
        return Output("", str(error))
    try:
        out, err = await asyncio.wait_for(process.communicate(), limit)
    except BaseException as error:
        if process.returncode is None:
            process.kill()
            await process.wait()
        if isinstance(error, TimeoutError):
            return Output("", f"no end within {limit:g} s")
        raise
    text = out.decode(errors="replace")
    if process.returncode:
        complaint = err.decode(errors="replace").strip()
        return Output(text, f"status {process.returncode}: {complaint}")
    return Output(text)
