"""`./run manifests binaries`: build Helm where it is missing, and say where it is."""

from __future__ import annotations

import sys

from tests.k8s.binaries import BuildError
from tests.manifests.helm_program import HELM


def main() -> int:
    """0 and the folder on stdout, or 1 and the reason."""
    try:
        print(HELM.build())
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
