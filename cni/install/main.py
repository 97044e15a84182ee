"""`install-cni`: the installer as a command, an init container and a sidecar.

By hand it does everything and ends. In a container, where the host's directories are mounted
below /host, it does the same and then stays, as Calico's does, unless SLEEP=false.
Tested in tests/cni/test_install.py.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from cni.install import binaries, configuration
from cni.install.keeping import Keeper, stay
from cni.install.settings import HOST, VARIABLES, Settings, settings_from
from libcalico import command_line
from libcalico.errors import MuslinError
from libcalico.process import logs, paths

log = logging.getLogger(__name__)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    width = max(len(one.name) for one in VARIABLES)
    lines = [
        f"  {one.name:{width}}  {one.meaning or 'for the template'}"
        + (f" ({one.default})" if one.default else "")
        for one in VARIABLES
    ]
    made = argparse.ArgumentParser(
        prog="install-cni",
        description="Install the CNI plugins calico and calico-ipam and their configuration.",
        epilog="environment:\n" + "\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command_line.add_version(made)
    what = made.add_mutually_exclusive_group()
    what.add_argument("--binaries-only", action="store_true", help="no configuration; then end")
    what.add_argument("--configuration-only", action="store_true", help="no executables")
    what.add_argument("--uninstall", action="store_true", help="remove what is ours; then end")
    made.add_argument("--twin", action="store_true", help="the Python twin of the executable")
    made.add_argument("--interpreter", default="", help="the twin's Python on the host (this one)")
    made.add_argument("--bin-dir", type=Path, action="append", help="executables; may be repeated")
    made.add_argument("--net-dir", type=Path, help="the configuration's directory")
    made.add_argument("--host", type=Path, default=HOST, help=f"the host's mounts ({HOST})")
    made.add_argument(
        "--plugins",
        type=Path,
        default=paths.CNI_BIN,
        help="other plugins to copy onto the host, in a container only (%(default)s)",
    )
    made.add_argument(
        "--service-account",
        type=Path,
        default=paths.SERVICE_ACCOUNT,
        help="where the kubelet mounted token and CA (%(default)s)",
    )
    made.add_argument(
        "--chain",
        default=",".join(configuration.CHAINED),
        help="plugins to chain in our own configuration, where the node has them (%(default)s)",
    )
    return made


def settle(chosen: argparse.Namespace, environ: Mapping[str, str]) -> Settings:
    """Settings from command line and environment. Raises MuslinError."""
    parts = (
        ("configuration",)
        if chosen.configuration_only
        else ("binaries",) if chosen.binaries_only else ("binaries", "configuration")
    )  # fmt: skip
    return settings_from(
        environ,
        chosen.host,
        bin_dirs=tuple(chosen.bin_dir or ()),
        net_dir=chosen.net_dir,
        parts=parts,
        plugins=chosen.plugins,
        account=chosen.service_account,
    )


def run(chosen: argparse.Namespace, environ: Mapping[str, str]) -> Keeper | None:
    """Do what was asked; returns the keeper where it stays. Raises MuslinError, OSError."""
    settings = settle(chosen, environ)
    if chosen.uninstall:
        configuration.remove(settings)
        for folder in settings.bin_dirs:
            binaries.remove_binaries(folder)
        return None
    plan = None if chosen.binaries_only else configuration.plan(settings, environ)
    chained = [name for name in chosen.chain.split(",") if name]
    if unknown := set(chained) - configuration.CHAINED.keys():
        raise MuslinError(
            f"--chain: {', '.join(sorted(unknown))}: must be of {', '.join(configuration.CHAINED)}"
        )
    keeper = Keeper(environ, settings, chained)
    keeper.seen()
    if not chosen.configuration_only:
        for folder in settings.bin_dirs:
            binaries.install_binaries(
                folder,
                binaries.BUILT,
                twin=chosen.twin,
                interpreter=chosen.interpreter,
                others=settings.others,
                skip=settings.skip,
                update=settings.flag("UPDATE_CNI_BINARIES"),
            )
    if plan is None:
        return None
    configuration.write(settings, plan, chained)
    stays = settings.mounted or bool(environ.get("SLEEP"))
    return keeper if stays and settings.flag("SLEEP") else None


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script; exits 1 with one sentence if it cannot."""
    if (os.getuid(), os.getgid()) != (os.geteuid(), os.getegid()):
        sys.exit("install-cni runs as who calls it, never SUID: the environment chooses paths")
    chosen = parser().parse_args(arguments)
    logs.configure("install-cni", "INFO", "text")
    if code := command_line.guarded("install-cni", lambda: install(chosen), daemon=True):
        sys.exit(code)


def install(chosen: argparse.Namespace) -> int:
    """Do what the command line asks, and stay where one stays; the exit code."""
    try:
        keeper = run(chosen, os.environ)
    except (MuslinError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    if keeper is not None:
        stopped = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopped.set())
        log.info("installed; what changes is written again until SIGTERM")
        stay(keeper, stopped)
    return 0


if __name__ == "__main__":
    main()
