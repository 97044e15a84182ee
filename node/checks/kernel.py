"""Checks of the kernel: its version, its modules, and its programs for rules and sets.

Tested in tests/node/test_checks.py.
"""

from __future__ import annotations

import re

from node.checks.check import Finding, bad, check, good, unknown
from node.checks.facts import Facts
from node.kernel_modules import MODULES, Module

OLDEST = (5, 3)
_VERSION = re.compile(r"(\d+)\.(\d+)")


@check(
    "kernel-version",
    required=True,
    cause="Older kernels lack what processes and netlink need here (pidfd_open came with 5.3;"
    " Calico itself asks for 2.6.24).",
    fix="Boot a kernel of version 5.3 or newer.",
)
def kernel_version(facts: Facts) -> Finding:
    """The release of the running kernel."""
    match = _VERSION.match(facts.kernel.release)
    if match is None:
        return unknown(f"the kernel calls itself {facts.kernel.release!r}")
    version = (int(match[1]), int(match[2]))
    return (good if version >= OLDEST else bad)(facts.kernel.release)


NATIVE = "not needed: rules are in nftables here"


def _asked(facts: Facts, required: bool) -> list[Module]:
    """The modules that are required, or optional; those of iptables count only where it is used."""
    native = facts.kernel.native
    return [one for one in MODULES if (one.required and not (native and one.xtables)) == required]


def _listed(modules: list[Module]) -> str:
    return ", ".join(f"{'|'.join(one.names)} ({one.purpose})" for one in modules)


def _judge_modules(facts: Facts, required: bool) -> Finding:
    asked = _asked(facts, required)
    missing = [one for one in asked if not any(name in facts.kernel.modules for name in one.names)]
    if not missing:
        return good(f"all {len(asked)} are there")
    if not facts.kernel.modules_known:
        return unknown(f"no list of modules and no kernel configuration: {_listed(missing)}")
    return bad(f"missing: {_listed(missing)}")


@check(
    "modules",
    required=True,
    cause="Rules that need a missing module are refused by the kernel as a whole table.",
    fix="Install the kernel's modules package (linux-modules-extra, kernel-modules-extra) or load"
    " them with modprobe; name a built-in kernel's configuration with --kernel-config.",
)
def modules(facts: Facts) -> Finding:
    """Kernel modules that a node cannot do without."""
    return _judge_modules(facts, required=True)


@check(
    "modules-optional",
    required=False,
    cause="Only the feature named beside a module needs it.",
    fix="Install the kernel's modules package where that feature is used.",
)
def modules_optional(facts: Facts) -> Finding:
    """Kernel modules of single features."""
    return _judge_modules(facts, required=False)


@check(
    "iptables",
    required=True,
    cause="Policy is programmed with iptables-restore; without it pods have no policy and"
    " therefore no network.",
    fix="Install iptables 1.8 or newer (package iptables).",
)
def iptables(facts: Facts) -> Finding:
    """The iptables programs."""
    if facts.kernel.native:
        return good(NATIVE)
    versions = facts.kernel.iptables
    needed = ("iptables-save", "iptables-restore")
    absent = [name for name in needed if name not in versions]
    if absent:
        return bad(f"not installed: {', '.join(absent)}")
    text = versions["iptables-restore"]
    version = _VERSION.search(text)
    if version and (int(version[1]), int(version[2])) < (1, 8):
        return bad(f"{text}, older than 1.8")
    return good(text or "installed")


@check(
    "iptables-backend",
    required=False,
    cause="Rules in iptables-legacy and iptables-nft both apply; a drop in one cannot be undone"
    " by an accept in the other.",
    fix="Let every component use one back end (update-alternatives --set iptables ...), flush the"
    " other, or set FELIX_IPTABLESBACKEND.",
)
def iptables_backend(facts: Facts) -> Finding:
    """Only one of the two iptables back ends holds rules."""
    counts = facts.kernel.rules
    if counts is None:
        return unknown("the rules could not be listed")
    listed = ", ".join(f"{name}: {count} rules" for name, count in sorted(counts.items()))
    chosen = f"{facts.kernel.backend} is used here; {listed}" if facts.kernel.backend else listed
    return (bad if sum(count > 0 for count in counts.values()) > 1 else good)(chosen)


@check(
    "ipset",
    required=True,
    cause="Selectors become sets of addresses in the kernel.",
    fix="Load ip_set (modprobe ip_set), and run this check as root.",
)
def ipset(facts: Facts) -> Finding:
    """The kernel answers about its sets."""
    if facts.kernel.native:
        return good(NATIVE)
    if facts.kernel.ipset is None:
        return unknown("not asked: only root may")
    return bad(facts.kernel.ipset) if facts.kernel.ipset else good("the kernel answers")
