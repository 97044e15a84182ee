"""`./run upstream binaries [coredns|conformance|e2e ...]`: build what is missing."""

from __future__ import annotations

import sys

from tests.k8s.binaries import BuildError
from tests.upstream.binaries import ALL


def main(arguments: list[str]) -> int:
    """0 and the folders on stdout, or 1 and the reason."""
    known = [one.name for one in ALL]
    if arguments[:1] != ["binaries"] or not set(arguments[1:]) <= set(known):
        print(f"usage: ./run upstream binaries [{' | '.join(known)} ...]", file=sys.stderr)
        return 2
    try:
        for one in ALL:
            if len(arguments) == 1 or one.name in arguments:
                print(one.build())
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
