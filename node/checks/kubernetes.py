"""Checks of the CNI configuration and plugins, as kubelet and container runtime see them."""

from __future__ import annotations

from node.checks.check import Finding, bad, check, doubtful, good, unknown
from node.checks.facts import Facts

OURS = frozenset({"calico", "calico-ipam"})


def hidden(folders: str) -> Finding:
    """The finding about directories of the host that this container does not have. Pure."""
    return unknown(f"{folders}: not in this container; run it on the host, or in calico-cni's")


@check(
    "cni-config",
    required=True,
    cause="A configuration that cannot be read makes the runtime refuse every pod, or take the next"
    " file.",
    fix="Install it again (`python -m cni.install`, or the install-cni container); remove broken"
    " files.",
)
def cni_config(facts: Facts) -> Finding:
    """Our configuration is there and can be read."""
    where = facts.kubernetes
    broken = [f"{one.name}: {one.error}" for one in where.files if one.error]
    if broken:
        return bad(f"{where.net_dir}: {'; '.join(broken)}")
    if where.net_dir in where.unseen:
        return hidden(where.net_dir)
    if any(OURS & set(one.types) for one in where.files):
        return good(next(one.name for one in where.files if OURS & set(one.types)))
    missing = f"no file in {where.net_dir} names the plugin calico"
    # Before the first start there is no file, and outside Kubernetes none is needed.
    return doubtful(missing) if where.kubelet else unknown(missing)


@check(
    "cni-config-first",
    required=True,
    cause="The runtime takes the file that sorts first and no other: pods get another network.",
    fix="Remove the other plugin's file, or rename ours so that it sorts first.",
)
def cni_config_first(facts: Facts) -> Finding:
    """Our configuration sorts first."""
    if facts.kubernetes.net_dir in facts.kubernetes.unseen:
        return hidden(facts.kubernetes.net_dir)
    files = facts.kubernetes.files
    if not files:
        return unknown(f"{facts.kubernetes.net_dir} holds no configuration")
    first = files[0]
    if OURS & set(first.types):
        return good(first.name)
    ours = next((one.name for one in files if OURS & set(one.types)), None)
    description = f"{first.name} ({', '.join(first.types) or 'no plugin'})"
    return (
        bad(f"{description} sorts before {ours}")
        if ours
        else doubtful(f"{description}; ours is not there yet")
    )


@check(
    "cni-plugins",
    required=True,
    cause="A plugin that the configuration names and that is not installed fails every pod.",
    fix="Install calico and calico-ipam (`python -m cni.install`) and the standard plugins (package"
    " containernetworking-plugins).",
)
def cni_plugins(facts: Facts) -> Finding:
    """Every plugin that the first configuration names is installed."""
    unseen = facts.kubernetes.unseen
    if unseen:
        return hidden(", ".join(sorted(unseen)))
    if not facts.kubernetes.files:
        return unknown(f"{facts.kubernetes.net_dir} holds no configuration")
    first = facts.kubernetes.files[0]
    absent = [name for name in first.types if name not in facts.kubernetes.plugins]
    if absent:
        return bad(f"{first.name} names {', '.join(absent)}: not in {facts.kubernetes.bin_dir}")
    return good(f"{', '.join(first.types)} in {facts.kubernetes.bin_dir}")


@check(
    "cni-directories",
    required=True,
    cause="A runtime that looks elsewhere finds neither our configuration nor our plugins.",
    fix="Set the runtime's directories to ours, or CNI_NET_DIR and CNI_BIN_DIR to the runtime's.",
)
def cni_directories(facts: Facts) -> Finding:
    """Kubelet and runtime look where we install."""
    where = facts.kubernetes
    if not where.directories:
        return unknown("no kubelet flag and no runtime configuration says where it looks")
    heard: list[str] = []
    idle: list[str] = []
    for who, (net, binaries) in sorted(where.directories.items()):
        wrong = idle if who in where.unheard else heard
        if net and net.rstrip("/") != where.net_dir:
            wrong.append(f"{who} reads {net}, ours is {where.net_dir}")
        if binaries and where.bin_dir not in [one.rstrip("/") for one in binaries]:
            wrong.append(f"{who} runs {', '.join(binaries)}, ours is {where.bin_dir}")
    if heard:
        return bad("; ".join(heard + idle))
    if idle:
        return doubtful(f"{'; '.join(idle)}: with a runtime of its own only the runtime's count")
    return good(f"{', '.join(sorted(where.directories))}: {where.net_dir}, {where.bin_dir}")


@check(
    "cni-loopback",
    required=False,
    cause="containerd before 2.0 runs the loopback plugin for every pod.",
    fix="Install the standard plugins (package containernetworking-plugins).",
)
def cni_loopback(facts: Facts) -> Finding:
    """The loopback plugin is installed."""
    if not facts.kubernetes.kubelet:
        return unknown("no kubelet runs here")
    if facts.kubernetes.bin_dir in facts.kubernetes.unseen:
        return hidden(facts.kubernetes.bin_dir)
    there = "loopback" in facts.kubernetes.plugins
    return (good if there else bad)(f"{'in' if there else 'not in'} {facts.kubernetes.bin_dir}")
