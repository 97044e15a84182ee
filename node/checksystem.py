"""`calico-node checksystem`: gather facts, run the checks, print the results.

The exit status is 1 when a required check failed; warnings and skipped checks fail nothing.
`calicoctl node checksystem` execs this.
Tested in `tests/node/test_checksystem.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from libcalico.errors import MuslinError

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    parser.add_argument(
        "-f",
        "--kernel-config",
        type=Path,
        default=None,
        metavar="FILE",
        help="kernel configuration to find built-in modules in (plain or gzip)",
    )
    parser.add_argument("-c", "--config", default=None, help="file with the connection settings")
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="form of the results"
    )
    parser.add_argument(
        "--only", default="", metavar="ID,...", help="run these checks only (default: all)"
    )
    parser.add_argument(
        "--offline", action="store_true", help="ask neither the datastore nor other nodes"
    )


def main(chosen: argparse.Namespace) -> int:
    """Run the checks of a parsed command line; returns the exit status.

    Raises `MuslinError` for an unknown check or a kernel configuration that cannot be read.
    """
    # These imports are heavy, and `calico-node run` needs none of them.
    from node.checks import CHECKS, report, run
    from node.gather.everything import Options, gather

    only = [part.strip() for part in chosen.only.split(",") if part.strip()]
    for name in only:
        if all(one.id != name for one in CHECKS):
            allowed = ", ".join(one.id for one in CHECKS)
            raise MuslinError(f"--only: there is no check {name!r} (allowed: {allowed})")
    facts = asyncio.run(
        gather(os.environ, Options(chosen.kernel_config, chosen.config, chosen.offline))
    )
    results = run(facts, only)
    broken = report.failed(results)
    if chosen.output == "json":
        print(json.dumps(report.tree(results), indent=2))
        return 1 if broken else 0
    print(report.table(results))
    if broken:
        names = ", ".join(one.check.id for one in broken)
        print(f"{report.NOT_PASSED}: {names}", file=sys.stderr)
        return 1
    print(report.PASSED)
    return 0
