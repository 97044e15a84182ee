"""`calico-node`, which knows the kernel: found, and run in our place.

A floor of the house lies between us: `calicoctl` must not import `node`. Tested in
`tests/calicoctl/test_node_run.py`.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from libcalico.errors import MuslinError

NAME = "calico-node"


def find() -> str | None:
    """The path of `calico-node`: the one beside our interpreter first, then PATH."""
    beside = os.path.dirname(sys.executable)
    return shutil.which(NAME, path=f"{beside}{os.pathsep}{os.environ.get('PATH', os.defpath)}")


def replace_us(arguments: Sequence[str], environ: Mapping[str, str] | None = None) -> NoReturn:
    """Become `calico-node` with these arguments; raises `MuslinError` when it is not installed."""
    path = find()
    if path is None:
        raise MuslinError(
            f"{NAME} is not installed on this machine, neither beside calicoctl nor in PATH:"
            " install the whole package here"
        )
    sys.stdout.flush()
    os.execve(path, [NAME, *arguments], dict(os.environ if environ is None else environ))
