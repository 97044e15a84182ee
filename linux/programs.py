"""Programs that edit the kernel for us, run without a shell and with a time limit.

The child is started by vfork (CPython's default on Linux), so a big parent costs nothing more.
Tested in tests/linux/test_programs.py.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence

from linux.errors import CommandError

_SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LIMIT = 60.0


def search_path() -> str:
    """Where programs are looked for: the caller's PATH, then the system's own directories.

    Users' PATHs often lack the sbin directories in which iptables lives.
    """
    given = os.environ.get("PATH", "")
    return f"{given}:{_SYSTEM}" if given else _SYSTEM


def find(name: str) -> str | None:
    """The path of an installed program, None if there is none."""
    return shutil.which(name, path=search_path())


async def run(arguments: Sequence[str], stdin: bytes = b"", limit: float = _LIMIT) -> bytes:
    """Standard output of a program. Raises `CommandError` on any other status than 0.

    `limit` is in seconds; a program that takes longer is killed. Status 127: not installed.
    """
    environment = {"PATH": search_path(), "LC_ALL": "C"}
    name = arguments[0]
    try:
        process = await asyncio.create_subprocess_exec(
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
    except FileNotFoundError as error:
        raise CommandError(name, 127, "the program is not installed") from error
    try:
        out, err = await asyncio.wait_for(process.communicate(stdin), limit)
    except BaseException as error:
        # Cancelled or too slow: never leave a half-read child behind.
        if process.returncode is None:
            process.kill()
            await process.wait()
        if isinstance(error, TimeoutError):
            raise CommandError(name, -9, f"no answer within {limit:g} s") from error
        raise
    if process.returncode:
        raise CommandError(name, process.returncode, err.decode(errors="replace"))
    return out
