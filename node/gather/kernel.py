"""Facts about the kernel: modules, settings, rules, sets.

A module is present if it is loaded, built in, can be loaded, or is switched on in the kernel's
configuration. It also is if it answers: the kernel accepts a rule that needs it in a throw-away
network namespace.
Tested in tests/node/test_checksystem.py.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from libcalico.errors import MuslinError
from libcalico.process import status_file
from linux import programs, sysctl
from linux.errors import CommandError, KernelError
from linux.ipset import IPSets
from linux.iptables import detect_backend
from node.checks.facts import Kernel
from node.kernel_modules import MODULES, Module, present

SYSCTLS = (
    "net/ipv4/ip_forward",
    "net/ipv6/conf/all/forwarding",
    "net/ipv6/conf/all/disable_ipv6",
    "net/ipv4/conf/all/rp_filter",
    "net/netfilter/nf_conntrack_max",
    "net/netfilter/nf_conntrack_count",
    "net/ipv4/neigh/default/gc_thresh3",
    "fs/inotify/max_user_instances",
    "fs/inotify/max_user_watches",
)
PROGRAMS = ("iptables-save", "iptables-restore", "ip6tables-restore", "ipset", "nft")
_LIMIT = 10.0


async def read(config: Path | None, environ: Mapping[str, str] | None = None) -> Kernel:
    """The kernel's facts; `config` is a kernel configuration named by hand.

    Raises `MuslinError` when that file cannot be read.
    """
    release = os.uname().release
    switched_on = configuration(config, release)
    presence, known = present(MODULES, release, switched_on)
    presence |= await _answering([one for one in MODULES if not set(one.names) & set(presence)])
    rules, chains = await _rules()
    return Kernel(
        release=release,
        modules=presence,
        modules_known=known,
        sysctls={name: text for name in SYSCTLS if (text := sysctl.try_get(name)) is not None},
        native=await asyncio.to_thread(_native, environ or {}),
        iptables=await _versions(),
        rules=rules,
        backend=await detect_backend() if rules is not None else "",
        chains=chains,
        ipset=_ipset(),
    )


def _native(environ: Mapping[str, str]) -> bool:
    """Whether rules are in nftables: as felix reports if it runs, else as it would decide."""
    from felix.config.parameters import Config
    from felix.dataplane.rules.backend_mode import NATIVE, native

    in_use = (status_file.read("felix") or {}).get("backend")
    if in_use:
        return bool(in_use == NATIVE)
    words = {"enabled": "Enabled", "disabled": "Disabled"}
    mode = words.get(environ.get("FELIX_NFTABLESMODE", "").lower(), "Auto")
    try:
        return native(replace(Config(), nftables_mode=mode))
    except KernelError:
        return False


def configuration(named: Path | None, release: str) -> frozenset[str]:
    """The options of the kernel's configuration that are on, empty where there is none."""
    if named is not None:
        try:
            return switched_on(_plain(named))
        except (OSError, EOFError) as error:
            raise MuslinError(f"--kernel-config {named}: cannot be read: {error}") from None
    for path in (
        Path("/proc/config.gz"),
        Path(f"/boot/config-{release}"),
        Path(f"/lib/modules/{release}/config"),
        Path(f"/lib/modules/{release}/build/.config"),
    ):
        try:
            return switched_on(_plain(path))
        except (OSError, EOFError):
            continue
    return frozenset()


def _plain(path: Path) -> str:
    raw = path.read_bytes()
    return (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode(errors="replace")


def switched_on(text: str) -> frozenset[str]:
    """The options that are `y` or `m` in the text of a kernel configuration."""
    return frozenset(re.findall(r"^(CONFIG_\w+)=[ym]\s*$", text, re.MULTILINE))


async def _answering(modules: list[Module]) -> dict[str, str]:
    """The modules whose rule the kernel accepts in a throw-away network namespace."""
    if os.geteuid() != 0 or programs.find("unshare") is None:
        return {}
    answering: dict[str, str] = {}
    for module in modules:
        if not module.rule:
            continue
        try:
            await programs.run(
                ["unshare", "--net", "iptables", "-A", "INPUT", *module.rule], limit=_LIMIT
            )
        except CommandError:
            continue
        answering[module.names[0]] = "answers"
    return answering


async def _versions() -> dict[str, str]:
    versions = {}
    for name in PROGRAMS:
        if programs.find(name) is None:
            continue
        try:
            versions[name] = (
                (await programs.run([name, "--version"], limit=_LIMIT)).decode().strip()
            )
        except CommandError:
            versions[name] = ""
    return {name: text.splitlines()[0] if text else "" for name, text in versions.items()}


async def _rules() -> tuple[dict[str, int] | None, tuple[str, ...]]:
    """How many rules each back end holds, and the names of all chains; None if not root."""
    if os.geteuid() != 0:
        return None, ()
    counts: dict[str, int] = {}
    chains: set[str] = set()
    for backend in ("nft", "legacy"):
        name = f"iptables-{backend}-save"
        # Listing legacy tables loads their module; without it there are no rules in them.
        if programs.find(name) is None or (
            backend == "legacy" and not Path("/proc/net/ip_tables_names").exists()
        ):
            continue
        try:
            text = (await programs.run([name], limit=_LIMIT)).decode(errors="replace")
        except CommandError:
            continue
        counts[backend] = len(re.findall(r"^-A ", text, re.MULTILINE))
        chains.update(re.findall(r"^:(\S+) -", text, re.MULTILINE))
    return counts or None, tuple(sorted(chains))


def _ipset() -> str | None:
    if os.geteuid() != 0:
        return None
    try:
        with IPSets() as sets:
            sets.names()
    except (KernelError, OSError) as error:
        return str(error)
    return ""
