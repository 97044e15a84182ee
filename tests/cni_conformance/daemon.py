"""`calico-cni` as it starts, with its places below one folder.

python -m tests.cni_conformance.daemon FOLDER
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Mapping
from pathlib import Path

from cni import main as entrance
from cni.install import keeping
from cni.node.daemon_context import Settings
from cni.server.daemon import settings_from


def main() -> None:
    """Serve until a signal comes."""
    folder = Path(sys.argv.pop(1))

    def settled(environ: Mapping[str, str]) -> Settings:
        return dataclasses.replace(
            settings_from(environ),
            nodename_file=folder / "nodename",
            socket=folder / "private/cni.sock",
            felix_socket=folder / "private/node.sock",
            pending=folder / "pending",
            status=folder / "status",
            health_port=0,
            host=folder / "host",
        )

    setattr(entrance, "settings_from", settled)  # noqa: B010 - a name that the module imports
    keep = functools.partial(keeping.when_serving, account=folder / "account")
    setattr(keeping, "when_serving", keep)  # noqa: B010
    entrance.main()


if __name__ == "__main__":
    main()
