"""Put the executable and its configuration where a container runtime looks for them.

A runtime watches the configuration directory and may start a plugin at any instant, also in
the middle of an installation. So (INST-1) binaries come before the configuration, the
configuration is last; (INST-2) every file is written beside its place under a name that no
runtime takes for a configuration or a plugin, synced, and renamed; (INST-3) nothing is ever
SUID, executables are 0755, the configuration is 0600; (INST-4) one that has the same bytes
and mode already is left alone, so that a runtime which watches does not reload for nothing.

`calico` and `calico-ipam` are one executable that looks at its own name (CAL-32). Where the
package was installed without a compiler there is none; then its twin in Python is installed,
which needs an interpreter on the host (INST-5).
Source: conformance section 19. Tested in `tests/cni/test_install.py`.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cni import twin as python_twin
from libcalico import paths
from libcalico.errors import MuslinError

log = logging.getLogger(__name__)

NAMES = ("calico", "calico-ipam")
CONFLIST_NAME = "10-calico.conflist"
BUILT = Path(__file__).parent / "_bin" / "calico"


class NoExecutable(MuslinError):
    """There is no executable to install, and no interpreter for its twin."""


def own_interpreter() -> str:
    """The Python that runs us, outside of any virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


def default_conflist(mtu: int = 0) -> dict[str, Any]:
    """Return the network list that we write: version 1.0.0, as every chained plugin speaks it.

    `mtu` in bytes; 0 leaves it to the node. It names no credentials: the daemon has them.
    """
    plugin: dict[str, Any] = {
        "type": "calico",
        "log_level": "info",
        "ipam": {"type": "calico-ipam"},
        "capabilities": {"io.kubernetes.cri.pod-annotations": True},
    }
    if mtu:
        plugin["mtu"] = mtu
    return {"name": "k8s-pod-network", "cniVersion": "1.0.0", "plugins": [plugin]}


def install(
    bin_dir: Path = paths.CNI_BIN,
    net_dir: Path = paths.CNI_NET,
    conflist: Mapping[str, Any] | None = None,
    *,
    executable: Path = BUILT,
    twin: bool = False,
    interpreter: str = "",
) -> None:
    """Install both plugin names into `bin_dir`, then the conflist into `net_dir`.

    The directories are made where missing. May be repeated, also while plugins run. `twin`
    installs the Python twin even where there is an executable, for `interpreter` (a path on
    the host; ours unless given). Raises NoExecutable when there is nothing to install, and
    OSError; then the configuration is as it was.
    """
    install_binaries(bin_dir, executable, twin=twin, interpreter=interpreter)
    install_conflist(net_dir, default_conflist() if conflist is None else conflist)


def install_binaries(
    bin_dir: Path, executable: Path = BUILT, *, twin: bool = False, interpreter: str = ""
) -> None:
    """Install `calico` and `calico-ipam`; raises NoExecutable, OSError."""
    content = _twin(interpreter) if twin else _executable(executable, interpreter)
    bin_dir.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        _replace(bin_dir / name, content, 0o755)


def _executable(path: Path, interpreter: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        log.warning("there is no CNI executable at %s: its Python twin is installed", path)
        return _twin(interpreter)


def _twin(interpreter: str) -> bytes:
    chosen = interpreter or own_interpreter()
    try:
        return python_twin.source(chosen)
    except ValueError as error:
        raise NoExecutable(
            f"neither an executable nor its Python twin can be installed: {error}; install "
            "musl-tools (or any C compiler) and the package again, or name another interpreter"
        ) from error


def install_conflist(net_dir: Path, conflist: Mapping[str, Any]) -> None:
    """Write `conflist` as 10-calico.conflist, 0600; raises OSError."""
    net_dir.mkdir(parents=True, exist_ok=True)
    content = msgspec.json.format(msgspec.json.encode(conflist), indent=2) + b"\n"
    _replace(net_dir / CONFLIST_NAME, content, 0o600)


def uninstall(bin_dir: Path = paths.CNI_BIN, net_dir: Path = paths.CNI_NET) -> None:
    """Remove our own files only, the configuration first (INS-12). Missing ones are fine."""
    (net_dir / CONFLIST_NAME).unlink(missing_ok=True)
    for name in NAMES:
        (bin_dir / name).unlink(missing_ok=True)


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Make `path` a regular file with `content` and `mode` in one step, durably."""
    if _is_same(path, content, mode):
        return
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        fresh.rename(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _is_same(path: Path, content: bytes, mode: int) -> bool:
    try:
        about = path.lstat()
        return about.st_mode == 0o100000 | mode and path.read_bytes() == content
    except FileNotFoundError:
        return False


def main(arguments: Sequence[str] | None = None) -> None:
    """`python -m cni.install`: the default places and the default configuration."""
    parser = argparse.ArgumentParser(prog="python -m cni.install", description=main.__doc__)
    parser.add_argument("--twin", action="store_true", help="the Python twin of the executable")
    parser.add_argument(
        "--interpreter", default="", help="the twin's Python on the host (default: this one)"
    )
    chosen = parser.parse_args(arguments)
    try:
        install(twin=chosen.twin, interpreter=chosen.interpreter)
    except NoExecutable as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
