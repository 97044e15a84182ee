"""Runs as the first process of a machine: gives it a file tree of its own, then only holds it.

Started in new network, mount and UTS namespaces. /run becomes a tmpfs; /etc, /var and /opt become
overlays over the host's with their upper halves on that tmpfs, so every default path holds and the
host's tree stays untouched (LAB-4). Where nothing of the host may show, an empty directory lies on
top. Then the process becomes `sleep infinity`, whose pid names the machine. Standard library only
and run with `-I -S`: it must start fast.

In a rootless lab the host's files belong to no user that we are: a directory can be written to only
where its upper half was made here beforehand, a file only be replaced.

Invariant LAB-4: no file of the host is written by what runs in a machine of the lab.
"""

import ctypes
import os
import socket
import sys

MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 2
OWN_TREES = ("etc", "var", "opt")
RUN_DIRECTORIES = ("/run/lock", "/run/netns", "/run/bird", "/run/calico")
WRITABLE_DIRECTORIES = ("var/lib",)
EMPTY_DIRECTORIES = {
    "var/lib/calico": (),
    "var/lib/cni": (),
    "var/log": ("calico",),
    "etc/bird": (),
    "etc/calico": (),
    "etc/cni": ("net.d",),
    "opt/cni": ("bin",),
}
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
    for path in (*WRITABLE_DIRECTORIES, *EMPTY_DIRECTORIES):
        os.makedirs(f"/run/.tree/upper/{path}", exist_ok=True)
    attributes = ",userxattr" if rootless() else ""
    for tree in OWN_TREES:
        halves = f"upperdir=/run/.tree/upper/{tree},workdir=/run/.tree/work/{tree}"
        mount("overlay", f"/{tree}", "overlay", 0, f"lowerdir=/{tree},{halves}{attributes}")
    for path, inside in EMPTY_DIRECTORIES.items():
        lay_empty(path, inside)
    for path in RUN_DIRECTORIES:
        os.makedirs(path, exist_ok=True)


def rootless() -> bool:
    """Whether this is a user namespace in which only some ids mean anything."""
    with open("/proc/self/uid_map") as table:
        return table.read().split() != ["0", "0", "4294967295"]


def lay_empty(path: str, inside: tuple[str, ...]) -> None:
    """An own directory over the host's: a node starts with none of what lies there."""
    own = f"/run/.tree/own/{path}"
    os.makedirs(own)
    for name in inside:
        os.mkdir(f"{own}/{name}")
    mount(own, f"/{path}", None, MS_BIND)


def write(path: str, text: str) -> None:
    """A new file in place of the host's."""
    if os.path.lexists(path):
        os.unlink(path)
    with open(path, "w") as file:
        file.write(text)


def main() -> None:
    """Build the tree, say so on stdout, become the holder."""
    socket.sethostname(sys.argv[1])
    build_tree()
    write("/etc/hostname", sys.argv[1] + "\n")
    write("/etc/hosts", f"127.0.0.1 localhost\n::1 localhost\n127.0.1.1 {sys.argv[1]}\n")
    os.chdir("/")
    os.write(1, b"ready\n")
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.execvp("sleep", ["sleep", "infinity"])


if __name__ == "__main__":
    main()
