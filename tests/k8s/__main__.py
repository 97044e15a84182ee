"""`./run k8s binaries [etcd|hyperkube|1.20 ...]`: build what is missing and say where it is."""

from __future__ import annotations

import sys

from tests.k8s.binaries import PROGRAMS, BuildError, build
from tests.k8s.releases import OLD


def main(arguments: list[str]) -> int:
    """0 and the folders on stdout, or 1 and the reason. Without words: the current version."""
    known, wanted = [one.file for one in PROGRAMS], arguments[1:]
    if arguments[:1] != ["binaries"] or not set(wanted) <= {*known, OLD.word}:
        names = " | ".join([*known, OLD.word])
        print(f"usage: ./run k8s binaries [{names} ...]", file=sys.stderr)
        return 2
    try:
        if wanted != [OLD.word]:
            print(build(only=[word for word in wanted if word != OLD.word]))
        if OLD.word in wanted:
            print(OLD.build())
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
