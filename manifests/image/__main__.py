"""`./run build image|calicoctl`: archives for container runtimes, and calicoctl as one file."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from libcalico.process.progress import Progress
from manifests.image import build
from manifests.image.cache import BuildError
from manifests.image.contents import TARGETS
from manifests.image.tree import write
from manifests.image.wheels import ROOT
from manifests.single import build as single


def main(arguments: list[str]) -> int:
    """0 and what was written on stdout, or 1 and the reason on stderr."""
    parser = argparse.ArgumentParser(prog="run build image", description="Make a container image.")
    parser.add_argument("--target", choices=sorted(TARGETS), default="node")
    parser.add_argument("--name", default="", help="the image's reference")
    parser.add_argument(
        "-o", "--output", type=Path, help="the archive; build/TARGET.tar by default"
    )
    parser.add_argument("--rootfs", type=Path, help="an empty folder: put the files there instead")
    if arguments[:1] == ["calicoctl"]:
        return _calicoctl(arguments[1:])
    if arguments[:1] != ["image"]:
        print("usage: ./run build image|calicoctl [--help]", file=sys.stderr)
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
        with Progress(f"image {chosen.target}") as progress:
            made = build.image(target, chosen.name, progress=progress)
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


def _calicoctl(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="run build calicoctl", description="Make calicoctl as one executable file."
    )
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "build" / "calicoctl")
    output = parser.parse_args(arguments).output
    try:
        with Progress("calicoctl as one file"):
            content = single.calicoctl()
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    output.parent.mkdir(parents=True, exist_ok=True)
    # In one step: whoever runs the old file goes on with it.
    fresh = output.with_name(f".{output.name}.{os.getpid()}")
    fresh.write_bytes(content)
    fresh.chmod(0o755)
    fresh.replace(output)
    print(f"{output} {len(content) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
