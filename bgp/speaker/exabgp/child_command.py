"""How ExaBGP is started, and what it says against a configuration.

Tested in tests/bgp/test_exabgp.py.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

START_TIMEOUT = 60.0

LAUNCH = Path(__file__).with_name("launch.py")

_OPEN_WAIT = 30


async def validate(configuration: Path, uid: int) -> str:
    """ExaBGP's complaint about a configuration file; empty if it accepts it."""
    process = await asyncio.create_subprocess_exec(
        *command("validate", configuration, uid),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(),
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), START_TIMEOUT)
    except TimeoutError:
        return f"exabgp validate gave no answer within {START_TIMEOUT:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    if process.returncode == 0:
        return ""
    lines = [readable(line) for line in output.splitlines() if line.strip()]
    summary = next((at for at, line in enumerate(lines) if line.startswith("error:")), -1)
    lines = lines[summary + 1 :]  # after it the same words once more, without the path
    return " | ".join(lines)[-500:] or f"exit {process.returncode}"


def readable(line: bytes) -> str:
    """A line of ExaBGP's log, fit for ours: it may quote the configuration, keys included."""
    if b"md5" in line:
        return "(a line that may hold a key is withheld)"
    return line.decode(errors="replace")


def command(
    action: str, configuration: Path, uid: int, descriptors: Iterable[int] = ()
) -> list[str]:
    """`descriptors`: where `server` reads commands, and where it writes its lines."""
    arguments = [str(os.getpid()), str(uid), action, str(configuration), *map(str, descriptors)]
    return [sys.executable, "-I", str(LAUNCH), *arguments]


def environment() -> dict[str, str]:
    return {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "exabgp_api_cli": "false",
        "exabgp_bgp_openwait": str(_OPEN_WAIT),  # who dials and says nothing, in seconds
        "exabgp_daemon_user": "root",  # launch.py has already chosen the user
        "exabgp_log_level": "INFO",
        "exabgp_log_destination": "stdout",
    }
