"""`./run k8s binaries [etcd|hyperkube ...]`: build what is missing and say where it is."""

from __future__ import annotations

import sys

from tests.k8s.binaries import PROGRAMS, BuildError, build


def main(arguments: list[str]) -> int:
    """0 and the folder on stdout, or 1 and the reason."""
    known = [one.file for one in PROGRAMS]
    if arguments[:1] != ["binaries"] or not set(arguments[1:]) <= set(known):
        print(f"usage: ./run k8s binaries [{' | '.join(known)} ...]", file=sys.stderr)
        return 2
    try:
        print(build(only=arguments[1:]))
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
