"""Runs as the first process of a machine: gives it a file tree of its own, then only holds it.

Started in new network, mount and UTS namespaces. /run becomes a tmpfs; /etc, /var and /opt become
overlays over the host's with their upper halves on that tmpfs, so every default path holds and the
host's tree stays untouched (LAB-4). Then the process becomes `sleep infinity`, whose pid names the
machine. Standard library only and run with `-I -S`: it must start fast.
"""

import ctypes
import os
import socket
import sys

MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 2
OWN_TREES = ("etc", "var", "opt")
RUN_DIRECTORIES = ("/run/lock", "/run/netns", "/run/bird", "/run/calico")
EMPTY_DIRECTORIES = (
    "var/lib/calico",
    "var/lib/cni",
    "var/log/calico",
    "etc/calico",
    "etc/cni",
    "opt/cni",
    "opt/cni/bin",
    "etc/cni/net.d",
)
_libc = ctypes.CDLL(None, use_errno=True)


def mount(
    source: str, target: str, kind: str | None, flags: int = 0, data: str | None = None
) -> None:
    """mount(2); OSError naming the target."""
    text = [None if item is None else item.encode() for item in (source, target, kind, data)]
    if _libc.mount(text[0], text[1], text[2], ctypes.c_ulong(flags), text[3]):
        raise OSError(ctypes.get_errno(), f"mount {kind or 'flags'}", target)


def detach_below(prefix: str) -> None:
    """Unmount what lies at or below a path: else the copies here pin other machines' namespaces."""
    with open("/proc/self/mounts") as table:
        targets = [line.split()[1] for line in table]
    for target in reversed(targets):
        if target == prefix or target.startswith(prefix + "/"):
            _libc.umount2(target.encode(), MNT_DETACH)


def build_tree() -> None:
    """The machine's own /run, /etc, /var and /opt."""
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    detach_below("/run")
    mount("run", "/run", "tmpfs", 0, "mode=755")
    for tree in OWN_TREES:
        os.makedirs(f"/run/.tree/upper/{tree}")
        os.makedirs(f"/run/.tree/work/{tree}")
    for path in EMPTY_DIRECTORIES:
        hide_lower(f"/run/.tree/upper/{path}")
    for tree in OWN_TREES:
        options = (
            f"lowerdir=/{tree},upperdir=/run/.tree/upper/{tree},workdir=/run/.tree/work/{tree}"
        )
        mount("overlay", f"/{tree}", "overlay", 0, options)
    for path in RUN_DIRECTORIES:
        os.makedirs(path, exist_ok=True)


def hide_lower(upper: str) -> None:
    """An upper directory under which nothing of the host's shows: a node starts with none of it."""
    os.makedirs(upper, exist_ok=True)
    os.setxattr(upper, "trusted.overlay.opaque", b"y")


def main() -> None:
    """Build the tree, say so on stdout, become the holder."""
    socket.sethostname(sys.argv[1])
    build_tree()
    with open("/etc/hostname", "w") as file:
        file.write(sys.argv[1] + "\n")
    with open("/etc/hosts", "w") as file:
        file.write(f"127.0.0.1 localhost\n::1 localhost\n127.0.1.1 {sys.argv[1]}\n")
    os.chdir("/")
    os.write(1, b"ready\n")
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.execvp("sleep", ["sleep", "infinity"])


if __name__ == "__main__":
    main()
