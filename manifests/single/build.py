"""The one file: a line for the kernel, then an archive that Python runs (PEP 441).

Extension modules carry the version of their Python in their names, so wheels for several
Pythons lie side by side: what they share is in the member `common`, the rest in one member a
Python. The same input gives the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import platform
import re
import time
import zipfile
from pathlib import Path

from manifests.image import cache, wheels
from manifests.image.build import epoch
from manifests.image.cache import BuildError
from manifests.image.tree import Tree, file
from manifests.image.wheels import ROOT

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
GLIBC = 28
"""Hosts with glibc 2.28 or later are served."""

LEFT_OUT = frozenset({"exabgp", "pyroute2", "win-inet-pton"})
"""What agents need and calicoctl does not."""

_FIRST_LINE = b'#!/bin/sh\nexec python3 -IS "$0" "$@"\n'
_EXTENSION = re.compile(r"\.cpython-(\d)(\d+)-[a-z0-9_-]+\.so$")


def calicoctl(root: Path = ROOT) -> bytes:
    """The file's content. Raises BuildError."""
    when = epoch()
    own = wheels.unpack([wheels.ours(root, when)], ".")
    common: Tree = {
        path: entry for path, entry in own.items() if not path.startswith(("./lab/", "./cni/_bin/"))
    }
    members: dict[str, Tree] = {}
    for python in PYTHONS:
        found = wheels.unpack(
            [one for one in wheels.pinned(python, GLIBC) if one.name.lower() not in LEFT_OUT], "."
        )
        tag = "cp" + python.replace(".", "")
        members[tag] = {}
        for path, entry in found.items():
            member = members[tag] if _EXTENSION.search(path) else common
            if member.setdefault(path, entry) != entry and path.endswith((".py", ".so")):
                raise BuildError(f"{path} differs between the wheels for {', '.join(PYTHONS)}")
    inner = {name: _member(tree, when) for name, tree in {"common": common, **members}.items()}
    return packed(inner, when)


def packed(inner: dict[str, bytes], when: int) -> bytes:
    """The file of its members: `common` and one for each Python, archives themselves."""
    boot = Path(__file__).with_name("boot.py").read_bytes()
    key = cache.key(boot.decode(), {n: hashlib.sha256(c).hexdigest() for n, c in inner.items()})
    outer: Tree = {
        "__main__.py": file(boot),
        "key": file(key[:32].encode()),
        "machine": file(platform.machine().encode()),
        **{name: file(content) for name, content in inner.items()},
    }
    return _FIRST_LINE + _zip(outer, when, stored=True)


def _member(tree: Tree, when: int) -> bytes:
    """An archive that takes long to pack, kept by what it holds."""
    held = {path: hashlib.sha256(entry.data).hexdigest() for path, entry in tree.items()}
    place = cache.folder("image", "single") / f"{cache.key(held, when)}.zip"
    return cache.kept(place, lambda: _zip(tree, when))


def _zip(tree: Tree, when: int, *, stored: bool = False) -> bytes:
    out = io.BytesIO()
    kind = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(out, "w", kind) as archive:
        for path, entry in sorted(tree.items()):
            info = zipfile.ZipInfo(path.removeprefix("./"), time.gmtime(when)[:6])
            info.compress_type, info.external_attr = kind, (0o100000 | entry.mode) << 16
            archive.writestr(info, entry.data)
    return out.getvalue()
