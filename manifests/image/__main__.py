"""`./run build image`: make an archive that container runtimes import (docs/image.md)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from manifests.image import build
from manifests.image.cache import BuildError
from manifests.image.contents import TARGETS
from manifests.image.tree import write
from manifests.image.wheels import ROOT


def main(arguments: list[str]) -> int:
    """0 and what was written on stdout, or 1 and the reason on stderr."""
    parser = argparse.ArgumentParser(prog="run build image", description=__doc__)
    parser.add_argument("--target", choices=sorted(TARGETS), default="node")
    parser.add_argument("--name", default="", help="the image's reference")
    parser.add_argument(
        "-o", "--output", type=Path, help="the archive; build/TARGET.tar by default"
    )
    parser.add_argument("--rootfs", type=Path, help="an empty folder: put the files there instead")
    if arguments[:1] != ["image"]:
        print("usage: ./run build image [--help]", file=sys.stderr)
        return 2
    chosen = parser.parse_args(arguments[1:])
    target = TARGETS[chosen.target]
    try:
        if chosen.rootfs:
            chosen.rootfs.mkdir(parents=True, exist_ok=True)
            if any(chosen.rootfs.iterdir()):
                raise BuildError(f"--rootfs: {chosen.rootfs} is not empty")
            for tree in build.trees(target, ROOT, build.epoch())[0]:
                write(tree, chosen.rootfs)
            print(chosen.rootfs)
            return 0
        made = build.image(target, chosen.name)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    output = chosen.output or ROOT / "build" / f"{chosen.target}.tar"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(made.archive)
    output.with_suffix(".cdx.json").write_bytes(made.sbom)
    packed, unpacked = len(made.archive) / 1e6, made.unpacked / 1e6
    print(f"{output} {made.name} {made.digest} {packed:.1f} MB ({unpacked:.1f} MB unpacked)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
