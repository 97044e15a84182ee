"""The image that upstream's suites start in pods, by our own recipe; none is pulled.

Debian's packages give what the suites call in a shell (dig, curl, nc with `-u` and `-t`); agnhost
is their server and prober. One image carries every name that they ask for. nc must be the one of
netcat-openbsd, so /bin/sh is dash: busybox would run a nc of its own.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from manifests.image import cache, debian, oci
from manifests.image.build import EPOCH
from manifests.image.tree import Tree, directory, file, layer, link, skeleton
from tests.cri import image as plain
from tests.upstream.binaries import CLUSTER_POLICY, COREDNS, E2E

PACKAGES = ("libc-bin", "dash", "busybox", "curl", "netcat-openbsd", "bind9-dnsutils", "iproute2")
STAND_INS = ("agnhost", "glibc-dns-testing", "nginx", "pause")
"""Names that this image has; of nginx and pause the specs need only that they run."""
DNS = "localhost/muslin-coredns:1"
APPLETS = """
awk basename cat chmod cp cut date dd dirname echo env expr false find grep head hostname id ls
mkdir mv nslookup printf ps pwd rm sed seq sleep sort stat tail tee test timeout touch tr true
uname wc wget which xargs
"""
# A server of SCTP ends where the kernel has none, and its pod would never be ready.
BASH = b"""#!/bin/sh
case "$2" in
*"/agnhost porter"*) env | grep -q ^SERVE_SCTP_PORT_ && exec /agnhost pause ;;
esac
exec /bin/sh "$@"
"""


def tree(packages: Tree, sctp: bool) -> Tree:
    """All files of the image, above those of the packages."""
    made: Tree = {**skeleton(), **packages}
    for name in APPLETS.split():
        made.setdefault(f"usr/bin/{name}", link("busybox"))
    made |= {
        "etc/passwd": file(b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"),
        "etc/group": file(b"root:x:0:\nnogroup:x:65534:\n"),
        "etc/nsswitch.conf": file(b"passwd: files\ngroup: files\nhosts: files dns\n"),
        "usr/bin/sh": link("dash"),
        # Debian chooses between programs of one name when a package is installed.
        "usr/bin/nc": link("nc.openbsd"),
        "usr/bin/bash": link("dash") if sctp else file(BASH, 0o755),
        "agnhost": file(E2E.program("agnhost").read_bytes(), 0o755),
        "agnhost-2": link("agnhost"),
        "uploads": directory(),
    }
    for name in E2E.copies or {}:
        made[name] = file(E2E.program(name).read_bytes())
    return made


def build(folder: Path, *, sctp: bool) -> list[Path]:
    """Archives of everything that pods of the suites run from."""
    store = cache.folder("image", "debs")
    packages = debian.unpack(debian.lock(PACKAGES, store), store)
    packed = gzip.compress(raw := layer(tree(packages, sctp), EPOCH), 1, mtime=0)
    layers = [oci.Layer(oci.digest(raw), packed)]
    path = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    settings = oci.Settings(["/agnhost"], ["pause"], path, "")
    names = sorted(wanted())
    servers = folder / "agnhost.tar"
    servers.write_bytes(renamed(oci.archive(names[0], layers, settings, EPOCH)[1], names))
    program = {"coredns": (COREDNS.program("coredns").read_bytes(), 0o755)}
    return [servers, plain.pack(folder / "coredns.tar", DNS, program, ["/coredns"])]


def renamed(archive: bytes, names: Sequence[str]) -> bytes:
    """The archive of an image under several names. Pure."""
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as before, tarfile.open(None, "w", out) as after:
        for member in before:
            opened = before.extractfile(member)
            assert opened is not None
            content = opened.read()
            if member.name == "index.json":
                index = json.loads(content)
                (entry,) = index["manifests"]
                index["manifests"] = [
                    {**entry, "annotations": {"io.containerd.image.name": name}} for name in names
                ]
                content = json.dumps(index).encode()
            member.size = len(content)
            after.addfile(member, io.BytesIO(content))
    return out.getvalue()


def wanted() -> set[str]:
    """The names of images that the suites ask for, as they say them themselves."""
    listed = subprocess.run(
        [E2E.program("e2e-net.test"), "--list-images"], capture_output=True, text=True, check=True
    ).stdout.split()
    public = [one for one in listed if one.startswith("registry.k8s.io/")]
    chosen = {one for one in public if one.partition(":")[0].rpartition("/")[2] in STAND_INS}
    content = CLUSTER_POLICY.program("cluster-policy.test").read_bytes()
    found = re.findall(rb"image: (registry[\w./-]+/agnhost:[\w.-]+)", content)
    return chosen | {one.decode() for one in found}
