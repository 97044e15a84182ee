"""Checks of the machine around the kernel: its name, clock, disk, limits and other managers.

Tested in tests/node/test_checks.py.
"""

from __future__ import annotations

from node.checks.check import Finding, bad, check, doubtful, good, unknown
from node.checks.facts import Facts

FREE_BYTES, FREE_PERCENT = 200 * 1024 * 1024, 5.0
OPEN_FILES = 4_096
LARGEST_SKEW = 5.0
FOREIGN_CHAINS = ("FLANNEL", "CILIUM_", "WEAVE", "KUBE-ROUTER", "ANTREA", "CNI-HOSTPORT")
GENERIC_NAMES = frozenset({"localhost", "localhost.localdomain", "debian", "ubuntu", "raspberrypi"})


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


@check(
    "privileges",
    required=False,
    cause="Without root some facts cannot be seen; the checks that need them are skipped.",
    fix="Run `calicoctl node checksystem` as root.",
)
def privileges(facts: Facts) -> Finding:
    """Whether everything can be looked at."""
    return good("root") if facts.host.root else bad("not root: some checks are skipped")


@check(
    "hostname",
    required=True,
    cause="The node's name is its key in the datastore and in every block that it owns.",
    fix="Set NODENAME, or a host name of lower-case letters, digits, '-' and '.', that no other"
    " machine has.",
)
def hostname(facts: Facts) -> Finding:
    """The node has a name that can be one."""
    if facts.host.name_error:
        return bad(facts.host.name_error)
    if facts.host.node_name in GENERIC_NAMES:
        return bad(f"{facts.host.node_name}: a name that many machines have")
    return good(facts.host.node_name)


@check(
    "nodename-file",
    required=False,
    cause="A node that changes its name leaves its addresses and routes under the old one.",
    fix="Set NODENAME to the stored name, or drain the node, delete the old Node and remove"
    " /var/lib/calico/nodename.",
)
def nodename_file(facts: Facts) -> Finding:
    """The stored node name is the name of today."""
    stored, name = facts.host.nodename_file, facts.host.node_name
    if not stored:
        return unknown("this machine was never started as a node")
    same = stored == name
    return good(stored) if same else bad(f"stored: {stored}, now: {name}")


@check(
    "clock-synchronised",
    required=False,
    cause="A drifting clock breaks TLS (certificates are not yet or no longer valid), leases and"
    " the reading of logs over several nodes.",
    fix="Run chrony, systemd-timesyncd or ntpd.",
)
def clock_synchronised(facts: Facts) -> Finding:
    """The kernel's clock is kept by a time service."""
    if facts.host.clock_synchronised is None:
        return unknown("the kernel does not say")
    if facts.host.clock_synchronised:
        error = facts.host.clock_error_seconds
        return good("synchronised" + (f", error up to {error:.3f} s" if error else ""))
    return bad("not synchronised by any time service")


@check(
    "clock-skew",
    required=True,
    cause="Clocks that differ break certificates, leases and cool-down of addresses.",
    fix="Synchronise the clocks of this node and of the datastore's machines.",
)
def clock_skew(facts: Facts) -> Finding:
    """This clock agrees with those of the datastore's machines."""
    skews = {
        one.url: (one.asked_at - one.clock).total_seconds()
        for one in facts.store.endpoints
        if one.clock is not None and one.asked_at is not None
    }
    if not skews:
        return unknown("no endpoint told its time")
    url, worst = max(skews.items(), key=lambda item: abs(item[1]))
    skew = f"{abs(worst):.0f} s {'ahead of' if worst > 0 else 'behind'} {url}"
    if abs(worst) <= LARGEST_SKEW:
        return good(f"within {LARGEST_SKEW:.0f} s of {len(skews)} endpoint(s)")
    return bad(skew) if abs(worst) > 60 else doubtful(skew)


@check(
    "directories",
    required=True,
    cause="Sockets and status lie in /var/run/calico, the node's name and unfinished deletions in"
    " /var/lib/calico, plugin and configuration where the runtime looks.",
    fix="Mount them writable into the container, or make them on the host.",
)
def directories(facts: Facts) -> Finding:
    """Every directory that we write to can be written to."""
    if not facts.host.root:
        return unknown("only root can tell")
    if not facts.host.spaces:
        return unknown("not looked at")
    shut = [one.path for one in facts.host.spaces if not one.writable]
    if shut:
        return bad(f"not writable: {', '.join(shut)}")
    if facts.host.unseen:
        return good(f"all writable; not in this container: {', '.join(facts.host.unseen)}")
    return good("all writable")


@check(
    "disk-space",
    required=True,
    cause="On a full disk no status, journal or log can be written, and the runtime starts no pod.",
    fix="Free space or inodes on that file system.",
)
def disk_space(facts: Facts) -> Finding:
    """Space and inodes are left where we write."""
    if not facts.host.spaces:
        return unknown("not looked at")
    for one in facts.host.spaces:
        if one.free_bytes < FREE_BYTES or one.free_inodes_percent < 1.0:
            return bad(
                f"{one.path}: {one.free_bytes // 2**20} MiB and"
                f" {one.free_inodes_percent:.0f} % of the inodes free"
            )
    least = min(facts.host.spaces, key=lambda one: one.free_percent)
    free = f"{least.path}: {least.free_percent:.0f} % free"
    return doubtful(free) if least.free_percent < FREE_PERCENT else good(free)


@check(
    "open-files",
    required=False,
    cause="Every pod, peer and watch costs descriptors; out of them nothing new can be served.",
    fix="Raise the limit (LimitNOFILE=65536 in the unit, ulimit -n).",
)
def open_files(facts: Facts) -> Finding:
    """The limit of open files."""
    limit = facts.host.open_files
    if limit is None:
        return unknown("the limit cannot be read")
    if limit < 0:
        return good("no limit")
    return (good if limit >= OPEN_FILES else bad)(f"{limit}, wanted at least {OPEN_FILES}")


@check(
    "firewalld",
    required=False,
    cause="firewalld rebuilds the kernel's rules when it reloads and drops what it does not know:"
    " BGP, encapsulation and pods.",
    fix="Stop and disable firewalld on nodes; use HostEndpoint policies instead.",
)
def firewalld(facts: Facts) -> Finding:
    """No other firewall manager is running."""
    running = sorted(facts.host.processes & {"firewalld", "ufw"})
    return bad(f"running: {', '.join(running)}") if running else good("none running")


@check(
    "networkmanager",
    required=False,
    cause="NetworkManager takes over new interfaces and removes their routes and addresses.",
    fix="Write /etc/NetworkManager/conf.d/calico.conf: [keyfile]"
    " unmanaged-devices=interface-name:cali*;interface-name:tunl*;interface-name:vxlan.calico",
)
def networkmanager(facts: Facts) -> Finding:
    """NetworkManager leaves our interfaces alone."""
    if "NetworkManager" not in facts.host.processes:
        return good("not running")
    if facts.host.networkmanager_ignores:
        return good("cali* is unmanaged")
    return bad("running, and cali* is not among its unmanaged devices")


@check(
    "systemd-networkd",
    required=False,
    cause="systemd-networkd removes routes that it did not make when it restarts.",
    fix="Write /etc/systemd/networkd.conf.d/calico.conf: [Network] ManageForeignRoutes=no"
    " ManageForeignRoutingPolicyRules=no",
)
def systemd_networkd(facts: Facts) -> Finding:
    """systemd-networkd leaves foreign routes alone."""
    if "systemd-networkd" not in facts.host.processes:
        return good("not running")
    if facts.host.networkd_keeps_routes:
        return good("foreign routes are left alone")
    return bad("running, and ManageForeignRoutes is not switched off")


@check(
    "secrets-in-environment",
    required=False,
    cause="Everyone who may look at the process or its unit reads its environment.",
    fix="Put passwords and tokens into files with mode 0600 (client certificates for etcd).",
)
def secrets_in_environment(facts: Facts) -> Finding:
    """No secret stands in an environment variable."""
    names = facts.host.secret_variables
    return bad(f"set: {', '.join(names)}") if names else good("none")
