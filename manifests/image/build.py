"""An image from its three layers: Debian's packages, the wheels of others, and ours.

Each layer is kept by its inputs, so that a change of our code makes the last one only. The
same inputs give the same bytes: SOURCE_DATE_EPOCH is the time of everything, if it is set.
"""

from __future__ import annotations

import gzip
import os
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from libcalico.process.progress import Progress
from manifests.image import bytecode, cache, contents, debian, oci, sbom, wheels
from manifests.image.cache import BuildError
from manifests.image.contents import Target
from manifests.image.tree import Tree, file, layer, skeleton, with_parents
from manifests.image.wheels import ROOT

EPOCH = 1_577_836_800
"""The time of all files where SOURCE_DATE_EPOCH is not set: 2020-01-01."""


@dataclass(frozen=True, slots=True)
class Image:
    """A built image: its name, the digest of its manifest, its archive and its bill."""

    name: str
    digest: str
    archive: bytes
    sbom: bytes
    unpacked: int


def epoch() -> int:
    """The time of all files, in seconds since 1970; no file of a wheel may be older than 1980."""
    text = os.environ.get("SOURCE_DATE_EPOCH", "") or str(EPOCH)
    if not text.isdecimal() or int(text) < 315_532_800:
        raise BuildError(f"SOURCE_DATE_EPOCH: {text!r} is not a time since 1980, in seconds")
    return int(text)


def version(root: Path = ROOT) -> str:
    """Our version."""
    return str(wheels.project(root)["version"])


def trees(target: Target, root: Path, when: int) -> tuple[list[Tree], bytes]:
    """The layers of an image as trees, lowest first, and its bill of materials."""
    store = cache.folder("image", "debs")
    packages = debian.lock(target.packages, store)
    recipe = cache.digest_of(sorted(Path(__file__).parent.glob("*.py")), Path(__file__).parent)
    inputs: list[object] = [recipe, [one.sha256 for one in packages], target.name]
    base = _kept(inputs, lambda: _base(packages, store))
    python = _python(base)
    site = f"usr/local/lib/python{python}/dist-packages"
    others = wheels.pinned(python, _glibc(packages), target.extra)
    inputs += [[one.sha256 for one in others]]
    libraries = _kept(inputs, lambda: _site(base, wheels.unpack(others, site), site, python))
    own = wheels.ours(root, when)
    inputs += [own.sha256]
    top = _kept(inputs, lambda: _site(base, _own(target, own, site), site, python))
    scripts = wheels.project(root)["scripts"]
    assert isinstance(scripts, dict)
    installer = root / "manifests" / "install-cni.sh"
    top = {**top, **contents.commands(target, scripts, installer.read_bytes())}
    bill = sbom.document(f"muslin/{target.name}", version(root), packages, [*others, own], when)
    top[f"usr/share/doc/muslin/{target.name}.cdx.json"] = file(bill)
    return [base, libraries, top], bill


def settings(target: Target, root: Path = ROOT) -> oci.Settings:
    """What a container of an image starts with, and the image's labels."""
    return oci.Settings(
        ["/usr/bin/tini", "--"],
        list(target.start),
        {
            "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONSAFEPATH": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        target.user,
        {
            "org.opencontainers.image.title": f"muslin/{target.name}",
            "org.opencontainers.image.version": version(root),
            "org.opencontainers.image.licenses": "Apache-2.0",
        },
    )


def image(
    target: Target, name: str = "", root: Path = ROOT, progress: Progress | None = None
) -> Image:
    """Build one image; `progress` is told where it is. Raises BuildError."""
    progress = progress or Progress("")  # of which nothing is told: it is not entered
    when = epoch()
    name = name or f"localhost/muslin/{target.name}:{version(root)}"
    progress.begin("fetching and unpacking packages")
    found, bill = trees(target, root, when)
    progress.begin("packing layers", total=len(found))
    layers = []
    for tree in found:
        layers.append(_packed(layer(tree, when)))
        progress.done += 1
    progress.begin("writing the archive")
    digest, archive = oci.archive(name, layers, settings(target, root), when)
    size = sum(len(one.data) for tree in found for one in tree.values())
    return Image(name, digest, archive, bill, size)


def _packed(raw: bytes) -> oci.Layer:
    diff_id = oci.digest(raw)
    place = cache.folder("image", "layers") / f"{diff_id.partition(':')[2]}.gz"
    return oci.Layer(diff_id, cache.kept(place, lambda: gzip.compress(raw, 6, mtime=0)))


def _kept(inputs: list[object], make: Callable[[], Tree]) -> Tree:
    place = cache.folder("image", "trees") / cache.key(*inputs)
    tree: Tree = pickle.loads(cache.kept(place, lambda: pickle.dumps(make())))
    return tree


def _base(packages: list[debian.Package], store: Path) -> Tree:
    found = debian.unpack(packages, store)
    for path in contents.plugins_left_out(found):
        del found[path]
    tree = {**skeleton(), **found}
    tree |= contents.base(tree)
    python = _python(tree)
    places = [f"usr/lib/python{python}", "usr/lib/python3"]
    return with_parents({**tree, **bytecode.compiled(tree, {}, places, python)})


def _site(base: Tree, added: Tree, site: str, python: str) -> Tree:
    return {**added, **bytecode.compiled(base, added, [site], python)}


def _own(target: Target, own: wheels.Wheel, site: str) -> Tree:
    unpacked = wheels.unpack([own], site)
    return {
        path: one
        for path, one in unpacked.items()
        if not contents.room_left_out(target, site, path)
    }


def _python(base: Tree) -> str:
    for path in base:
        if found := re.fullmatch(r"usr/bin/python(3\.\d+)", path):
            return found[1]
    raise BuildError("the packages hold no Python")


def _glibc(packages: list[debian.Package]) -> int:
    (libc,) = [one for one in packages if one.name == "libc6"]
    return int(libc.version.split("-")[0].split(".")[1])
