"""Loading the kernel modules that a node uses, and one warning about those that are missing.

Start-up loads them before it programs anything: a module that autoloads later fails later, at the
first pod. A built-in module needs no file, so a module that no list names is tried in a throw-away
network namespace.
Tested in tests/node/test_modules.py.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable
from pathlib import Path

from linux import programs
from linux.errors import CommandError
from node.kernel_modules import MODULES, Module, present

log = logging.getLogger(__name__)

WANTED = ("ip_set", "xt_set", "ip_tables", "ipip", "vxlan")
LIMIT = 5.0
SET_RULE = "ipset create muslin hash:net && iptables -A INPUT -m set --match-set muslin src -j DROP"
TRIALS = {
    "ip_set": ("ipset", "create", "muslin", "hash:net"),
    "xt_set": ("sh", "-ec", SET_RULE),
    "ip_tables": ("iptables", "-A", "INPUT", "-j", "ACCEPT"),
    "ipip": ("ip", "link", "add", "trial", "type", "ipip", "local", "192.0.2.1"),
    "vxlan": ("ip", "link", "add", "trial", "type", "vxlan", "id", "1", "dstport", "4789"),
}
"""A command that works in a fresh namespace only with the module."""


def startup_modules() -> list[Module]:
    """The rows of the table of modules that start-up loads, in the order of `WANTED`."""
    rows = {name: one for one in MODULES for name in one.names}
    return [rows[name] for name in WANTED]


async def load(root: Path = Path("/")) -> tuple[Module, ...]:
    """Load the modules that are not there; returns those that stay missing, after a warning."""
    if os.geteuid() != 0:
        return ()
    release = os.uname().release
    presence, _ = await asyncio.to_thread(present, startup_modules(), release, frozenset(), root)
    absent = [
        one for one in startup_modules() if presence.get(one.names[0]) not in ("loaded", "built in")
    ]
    if absent and programs.find("modprobe") is not None:
        loaded = [one.names[0] for one in absent if await _runs(["modprobe", one.names[0]])]
        if loaded:
            log.info("loaded kernel modules: %s", ", ".join(loaded))
        absent = [one for one in absent if one.names[0] not in loaded]
    if absent and not await _runs(["unshare", "--net", "true"]):
        # A container that may not try them (its init container loaded them): it stays unknown.
        return ()
    works = await asyncio.gather(*(_works(one) for one in absent))
    missing = tuple(one for one, there in zip(absent, works, strict=True) if not there)
    warn_missing(missing)
    return missing


def warn_missing(missing: Iterable[Module]) -> None:
    """Log one warning that names missing modules and their purpose."""
    listed = ", ".join(f"{one.names[0]} ({one.purpose})" for one in missing)
    if listed:
        log.warning("this kernel has no %s: load them on the host (modprobe)", listed)


async def _works(module: Module) -> bool:
    trial = TRIALS[module.names[0]]
    needed = ("ipset", "iptables") if trial[0] == "sh" else trial[:1]
    if any(programs.find(name) is None for name in (*needed, "unshare")):
        # That stays unknown: checksystem has more checks.
        return True
    return await _runs(["unshare", "--net", *trial])


async def _runs(command: list[str]) -> bool:
    try:
        await programs.run(command, limit=LIMIT)
    except CommandError:
        return False
    return True
