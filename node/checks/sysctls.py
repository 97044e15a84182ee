"""Checks of the kernel's settings: forwarding, filters, sizes of tables.

Tested in tests/node/test_checks.py.
"""

from __future__ import annotations

from node.checks.check import Finding, bad, check, doubtful, good, unknown
from node.checks.facts import Facts

CONNTRACK = 131_072


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
    if not facts.network.has_ipv6:
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
    if not facts.network.has_ipv6:
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


def _number(facts: Facts, name: str) -> int | None:
    text = facts.kernel.sysctls.get(name, "")
    return int(text) if text.isdigit() else None
