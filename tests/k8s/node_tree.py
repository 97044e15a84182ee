"""The first process of a node: a file tree of the node's own, then it only waits.

Started in new network, mount, UTS and process namespaces, in Python without site packages. Every
top directory of this machine becomes the lower half of an overlay, so a node has all programs and
its own /etc, /opt, /usr and /var; what it writes lies in the node's folder and outlives its death,
as a disk does. /run is empty at every start. The container runtime and the kubelet have folders of
this machine below theirs: an overlay takes no other overlay for its upper half. Mounts of the
machine are left behind with its root, so a node holds nobody else's namespaces.

usage: node_tree.py {"disk": FOLDER, "name": NAME, "address": ADDRESS, "cgroup": NAME,
                     "programs": [FOLDER, ...]}
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys

BIND, DETACH, PRIVATE, SHARED, RECURSIVE = 0x1000, 2, 1 << 18, 1 << 20, 0x4000
SPECIAL = ("dev", "proc", "run", "sys", "tmp", "lost+found")
ON_DISK = ("var/lib/containerd", "var/lib/kubelet", "var/log/pods", "opt/containerd")
READY = "ready"
_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str = "none", flags: int = 0, data: str = "") -> None:
    """mount(2), on a directory that is made."""
    os.makedirs(target, exist_ok=True)
    _mount(source, target, kind, flags, data)


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    words = [word.encode() for word in (source, target, kind, data)]
    if _libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]):
        raise OSError(ctypes.get_errno(), f"mount {kind}", target)


def bind(source: str, target: str) -> None:
    """A folder, and what is mounted below it, in a second place."""
    os.makedirs(source, exist_ok=True)
    mount(source, target, flags=BIND | RECURSIVE)


def build(disk: str, groups: str, programs: list[str]) -> str:
    """Make the tree; where it is."""
    _mount("none", "/", "none", PRIVATE | RECURSIVE)
    root = f"{disk}/root"
    mount("root", root, "tmpfs", data="mode=755")
    for name in os.listdir("/"):
        if os.path.islink(f"/{name}"):
            os.symlink(os.readlink(f"/{name}"), f"{root}/{name}")
        elif os.path.isdir(f"/{name}") and name not in SPECIAL:
            upper, work = f"{disk}/upper/{name}", f"{disk}/work/{name}"
            os.makedirs(upper, exist_ok=True)
            os.makedirs(work, exist_ok=True)
            layers = f"lowerdir=/{name},upperdir={upper},workdir={work}"
            mount("overlay", f"{root}/{name}", "overlay", data=layers)
    bind("/dev", f"{root}/dev")
    mount("proc", f"{root}/proc", "proc")
    mount("sysfs", f"{root}/sys", "sysfs")
    bind("/sys/fs/cgroup", f"{root}/sys/fs/cgroup")
    mount("run", f"{root}/run", "tmpfs", data="mode=755")
    mount("tmp", f"{root}/tmp", "tmpfs", data="mode=1777")
    for place in ON_DISK:
        bind(f"{disk}/{os.path.basename(place)}", f"{root}/{place}")
    for place in (disk, *programs):
        bind(place, f"{root}{place}")
    for name in os.listdir("/sys/fs/cgroup"):
        if os.path.isdir(f"/sys/fs/cgroup/{name}"):
            os.makedirs(f"/sys/fs/cgroup/{name}/{groups}", exist_ok=True)
    return root


def move_into(root: str) -> None:
    """Make a tree the root, and let the machine's go with everything that is mounted in it."""
    os.chdir(root)
    os.makedirs("old", exist_ok=True)
    subprocess.run(["pivot_root", ".", "old"], check=True)
    os.chdir("/")
    if _libc.umount2(b"/old", DETACH):
        raise OSError(ctypes.get_errno(), "umount", "/old")
    os.rmdir("/old")
    _mount("none", "/", "none", SHARED | RECURSIVE)


def furnish(name: str, address: str) -> None:
    """What a machine has at its start."""
    socket.sethostname(name)
    for place in ("/run/netns", "/run/containerd", "/run/lock", "/etc/cni/net.d", "/opt/cni/bin"):
        os.makedirs(place, exist_ok=True)
    files = {"/etc/hosts": f"127.0.0.1 localhost\n{address} {name}\n", "/etc/resolv.conf": ""}
    for place, text in files.items():
        with open(place, "w", encoding="ascii") as out:
            out.write(text)


def main(told: str) -> None:
    """Become a node's first process."""
    wish = json.loads(told)
    disk = wish["disk"]
    # Children that nobody waits for are gone without a trace.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    move_into(build(disk, wish["cgroup"], wish["programs"]))
    furnish(wish["name"], wish["address"])
    with open(f"{disk}/{READY}", "w", encoding="ascii"):
        pass
    while True:
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1])
