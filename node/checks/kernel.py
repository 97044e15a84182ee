"""Checks of the kernel: version, modules, rules, settings.

Tested in tests/node/test_checks.py.
"""

from __future__ import annotations

import re

from node.checks.check import Finding, bad, check, doubtful, good, unknown
from node.checks.facts import Facts
from node.checks.modules import MODULES, Module

OLDEST = (5, 3)
CONNTRACK = 131_072
FOREIGN_CHAINS = ("FLANNEL", "CILIUM_", "WEAVE", "KUBE-ROUTER", "ANTREA", "CNI-HOSTPORT")
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


@check(
    "ip-forward",
    required=True,
    cause="A node that does not forward IPv4 drops every packet of its pods.",
    fix="Felix switches it on; find what switches it off again, and write net.ipv4.ip_forward=1"
    " to /etc/sysctl.d.",
)
def ip_forward(facts: Facts) -> Finding:
    """IPv4 forwarding."""
    value = facts.kernel.sysctls.get("net/ipv4/ip_forward")
    if value is None:
        return unknown("net.ipv4.ip_forward cannot be read")
    if value == "1":
        return good("net.ipv4.ip_forward=1")
    if "calico-felix" in facts.host.processes:
        return bad(f"net.ipv4.ip_forward={value} although felix runs")
    return doubtful(f"net.ipv4.ip_forward={value}; felix sets it when it starts")


@check(
    "ip6-forward",
    required=False,
    cause="A node that does not forward IPv6 drops every IPv6 packet of its pods.",
    fix="Felix switches it on; write net.ipv6.conf.all.forwarding=1 to /etc/sysctl.d.",
)
def ip6_forward(facts: Facts) -> Finding:
    """IPv6 forwarding, where the node has IPv6."""
    if facts.network.address_settings.get(6) is None or facts.network.address_settings[6].mode in (
        "",
        "none",
    ):
        return unknown("this node has no IPv6 (IP6 is not set)")
    value = facts.kernel.sysctls.get("net/ipv6/conf/all/forwarding")
    if value is None:
        return bad("the kernel has no IPv6")
    return (good if value == "1" else bad)(f"net.ipv6.conf.all.forwarding={value}")


@check(
    "ipv6-enabled",
    required=True,
    cause="IP6 asks for an IPv6 address while the kernel's IPv6 is switched off.",
    fix="Set net.ipv6.conf.all.disable_ipv6=0, or IP6=none.",
)
def ipv6_enabled(facts: Facts) -> Finding:
    """IPv6 is on where it is asked for."""
    setting = facts.network.address_settings.get(6)
    if setting is None or setting.mode in ("", "none"):
        return unknown("this node has no IPv6 (IP6 is not set)")
    value = facts.kernel.sysctls.get("net/ipv6/conf/all/disable_ipv6")
    return good("on") if value == "0" else bad("off" if value == "1" else "not in this kernel")


@check(
    "rp-filter",
    required=False,
    cause="With rp_filter=2 (loose) the kernel takes packets with a forged source from a pod if any"
    " route leads back; only felix's rule stands against it then.",
    fix="Set net.ipv4.conf.all.rp_filter=1 (or 0) in /etc/sysctl.d.",
)
def rp_filter(facts: Facts) -> Finding:
    """Reverse path filtering is not loose."""
    value = facts.kernel.sysctls.get("net/ipv4/conf/all/rp_filter")
    if value is None:
        return unknown("net.ipv4.conf.all.rp_filter cannot be read")
    return (bad if value == "2" else good)(f"net.ipv4.conf.all.rp_filter={value}")


@check(
    "conntrack-size",
    required=False,
    cause="A full connection table drops new connections of all pods at once.",
    fix="Raise net.netfilter.nf_conntrack_max (1000000 is what `calicoctl node run` sets).",
)
def conntrack_size(facts: Facts) -> Finding:
    """The connection table is large enough and not nearly full."""
    most = _number(facts, "net/netfilter/nf_conntrack_max")
    used = _number(facts, "net/netfilter/nf_conntrack_count")
    if most is None:
        return unknown("nf_conntrack is not loaded yet")
    usage = f"nf_conntrack_max={most}, in use {used if used is not None else 'unknown'}"
    full = used is not None and used > 0.8 * most
    return (bad if full or most < CONNTRACK else good)(usage)


@check(
    "neighbour-table",
    required=False,
    cause="The neighbour table holds an entry for every pod and node that this node talks to;"
    " a full one loses packets at random.",
    fix="Set net.ipv4.neigh.default.gc_thresh3=4096 or more (gc_thresh2 and 1 in proportion).",
)
def neighbour_table(facts: Facts) -> Finding:
    """The neighbour table has room for pods and nodes."""
    limit = _number(facts, "net/ipv4/neigh/default/gc_thresh3")
    if limit is None:
        return unknown("gc_thresh3 cannot be read (it belongs to the first namespace)")
    enough = max(1024, 2 * len(facts.store.nodes)) if facts.store.nodes else 1024
    return (bad if limit < enough else good)(f"gc_thresh3={limit}, wanted at least {enough}")


@check(
    "inotify",
    required=False,
    cause="Runtimes, kubelet and agents watch files; out of instances they stop seeing changes,"
    " a new CNI configuration among them.",
    fix="Set fs.inotify.max_user_instances=512 and fs.inotify.max_user_watches=65536 or more.",
)
def inotify(facts: Facts) -> Finding:
    """Enough inotify instances and watches."""
    instances = _number(facts, "fs/inotify/max_user_instances")
    watches = _number(facts, "fs/inotify/max_user_watches")
    if instances is None or watches is None:
        return unknown("the limits cannot be read")
    enough = instances >= 128 and watches >= 8192
    return (good if enough else bad)(f"{instances} instances, {watches} watches")


@check(
    "other-rules",
    required=False,
    cause="Rules of another network plugin accept, drop or masquerade before ours are asked.",
    fix="Remove the other plugin, then reboot the node or flush its chains.",
)
def other_rules(facts: Facts) -> Finding:
    """No chains of another network plugin are left."""
    if facts.kernel.rules is None:
        return unknown("the rules could not be listed")
    left = sorted(name for name in facts.kernel.chains if name.startswith(FOREIGN_CHAINS))
    if left:
        return bad(f"chains {', '.join(left[:8])}{' ...' if len(left) > 8 else ''}")
    return good("none")


def _number(facts: Facts, name: str) -> int | None:
    text = facts.kernel.sysctls.get(name, "")
    return int(text) if text.isdigit() else None
