"""What stands in the images beside packages and wheels: users, links, scripts, folders."""

from __future__ import annotations

from dataclasses import dataclass

from manifests.image.tree import Tree, directory, file, link

USER = 65532
"""Who runs in the images of controllers and page; a node's agents need capabilities of root."""

PYTHON = ("python3-minimal", "libpython3-stdlib", "libstdc++6", "netbase", "tini", "busybox")
PLUGINS = ("bandwidth", "host-local", "loopback", "portmap", "tuning")
"""The plugins of others that `install-cni` copies to a node."""

APPLETS = """
ash awk basename cat chmod chown cp cut date df dirname du echo env false find free grep head
hostname id kill less ln ls mkdir mv nc netstat nslookup od ping ps readlink realpath rm sed sh
sha256sum sleep sort stat tail tar tee test top touch tr true uname uniq vi wc wget which xargs
"""
"""What of busybox has a name of its own, where no package has it."""

ALTERNATIVES = ("iptables", "iptables-save", "iptables-restore")


@dataclass(frozen=True, slots=True)
class Target:
    """One image: its short name, packages, commands of ours, what it starts, and as whom."""

    name: str
    packages: tuple[str, ...]
    commands: tuple[str, ...]
    start: tuple[str, ...]
    user: str
    extra: str = ""
    """The extra of ours whose packages are in it, and whose room: other images have neither."""


NODE = Target(
    "node",
    (*PYTHON, "iptables", "ipset", "nftables", "kmod", "iproute2", "containernetworking-plugins"),
    (
        "calico-node",
        "calico-felix",
        "calico-bgp",
        "calico-cni",
        "calico-kube-controllers",
        "calicoctl",
        "cnitool",
        "install-cni",
    ),
    ("calico-node", "run"),
    "0:0",
)
CONTROLLERS = Target(
    "kube-controllers",
    PYTHON,
    ("calico-kube-controllers", "calicoctl", "calico-goldmane"),
    ("calico-kube-controllers",),
    f"{USER}:{USER}",
)
WEB = Target(
    "web", PYTHON, ("calico-web", "calicoctl"), ("calico-web",), f"{USER}:{USER}", extra="web"
)
TARGETS = {"node": NODE, "controllers": CONTROLLERS, "web": WEB}


def base(packages: Tree) -> Tree:
    """What maintainer scripts would have made, and the folders that processes of ours expect."""
    users = f"root:x:0:0:root:/root:/bin/sh\nmuslin:x:{USER}:{USER}::/nonexistent:/bin/false\n"
    tree: Tree = {
        "etc/passwd": file(f"{users}nobody:x:65534:65534::/nonexistent:/bin/false\n".encode()),
        "etc/group": file(f"root:x:0:\nmuslin:x:{USER}:\nnogroup:x:65534:\n".encode()),
        # Most runtimes put their own there; `ctr run` and runc alone do not.
        "etc/hosts": file(b"127.0.0.1 localhost\n::1 localhost\n"),
        "etc/nsswitch.conf": file(b"passwd: files\ngroup: files\nhosts: files dns\n"),
        "etc/calico": directory(),
        "var/lib/calico": directory(),
        "var/log/calico": directory(),
    }
    for name in APPLETS.split():
        if not {f"usr/bin/{name}", f"usr/sbin/{name}"} & set(packages):
            tree[f"usr/bin/{name}"] = link("busybox")
    for family in ("ip", "ip6"):
        for name in (one.replace("ip", family, 1) for one in ALTERNATIVES):
            variant = name.replace("tables", "tables-nft")
            if f"usr/sbin/{variant}" in packages:
                tree[f"usr/sbin/{name}"] = link(variant)
    for name in PLUGINS:
        if f"usr/lib/cni/{name}" in packages:
            tree[f"opt/cni/bin/{name}"] = link(f"/usr/lib/cni/{name}")
    return tree


def plugins_left_out(packages: Tree) -> list[str]:
    """Plugins of others that no node is given."""
    folder = "usr/lib/cni/"
    return [
        path
        for path in packages
        if path.startswith(folder) and path.removeprefix(folder) not in PLUGINS
    ]


_SCRIPT = """#!/usr/bin/python3 -I
import sys

from {module} import {function}

sys.exit({function}())
"""


def commands(target: Target, scripts: dict[str, str], installer: bytes) -> Tree:
    """The commands of ours; `scripts` are the entry points of pyproject.toml.

    `-I`: neither the environment nor the working directory says where code comes from.
    """
    tree: Tree = {}
    for name in target.commands:
        module, _, function = scripts[name].partition(":")
        text = _SCRIPT.format(module=module, function=function)
        tree[f"usr/local/bin/{name}"] = file(text.encode(), 0o755)
    if "install-cni" in target.commands:
        tree["install-cni.sh"] = tree["opt/cni/bin/install"] = file(installer, 0o755)
    return tree


def room_left_out(target: Target, site: str, path: str) -> bool:
    """Whether a file of ours is of the page's room, which only its own image has."""
    return target.extra != "web" and path.startswith(f"{site}/web/")
