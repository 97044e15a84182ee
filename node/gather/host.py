"""Facts about the machine: name, clock, disk, limits, processes and listeners.

Tested in tests/node/test_checksystem.py.
"""

from __future__ import annotations

import os
import re
import resource
import socket
from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as ConfigError
from dataclasses import replace
from pathlib import Path

from libcalico.errors import InvalidValue
from libcalico.process import paths
from node.checks.facts import Host, Space
from node.gather import clock
from node.settings.environment import node_name

_SECRET = re.compile(r"PASSWORD|PASSWD|SECRET|TOKEN|PRIVATE_?KEY", re.IGNORECASE)
_LISTEN = "0A"


def read(environ: Mapping[str, str], folders: Mapping[Path, Path | None]) -> Host:
    """The facts; `folders`: the directories that a node writes to, and their paths here."""
    stored = _text(Path(environ.get("CALICO_NODENAME_FILE", "") or paths.NODENAME))
    name, error = "", ""
    try:
        name = node_name(environ, stored, socket.gethostname())
    except InvalidValue as problem:
        error = str(problem)
    synchronised, clock_error = clock.read()
    names = dict(processes())
    return Host(
        root=os.geteuid() == 0,
        node_name=name,
        name_error=error,
        nodename_file=stored,
        clock_synchronised=synchronised,
        clock_error_seconds=clock_error,
        spaces=tuple(
            replace(space(here), path=str(name)) for name, here in folders.items() if here
        ),
        unseen=tuple(str(name) for name, here in folders.items() if here is None),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        processes=frozenset(names.values()),
        networkmanager_ignores=unmanaged(Path("/etc/NetworkManager")),
        networkd_keeps_routes=foreign_routes_kept(Path("/etc/systemd")),
        secret_variables=secret_variables(environ),
        listeners=listeners(names),
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


def secret_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Names of variables that hold a secret themselves, not the path of a file."""
    return tuple(
        sorted(
            name
            for name, value in environ.items()
            if value
            and _SECRET.search(name)
            and not value.startswith("/")
            and name.startswith(("ETCD", "CALICO", "K8S", "KUBE", "FELIX", "BGP"))
        )
    )


def space(folder: Path) -> Space:
    """Whether a directory (or the first of its parents that exists) takes files, and its room."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    writable = existing.is_dir() and os.access(existing, os.W_OK) and not _read_only(existing)
    try:
        stats = os.statvfs(existing)
    except OSError:
        return Space(path=str(folder), writable=False)
    inodes = 100.0 * stats.f_favail / stats.f_files if stats.f_files else 100.0
    return Space(
        path=str(folder),
        writable=writable,
        free_bytes=stats.f_bavail * stats.f_frsize,
        free_percent=100.0 * stats.f_bavail / stats.f_blocks if stats.f_blocks else 100.0,
        free_inodes_percent=inodes,
    )


def _read_only(folder: Path) -> bool:
    # In some sandboxes root passes access(2) on a read-only mount; statvfs(3) says it.
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def processes(proc: Path = Path("/proc")) -> list[tuple[int, str]]:
    """(process id, name) of every visible process; the name is its title, else its program's."""
    running = []
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            title = (entry / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
            name = (entry / "comm").read_text(errors="replace").strip()
        except OSError:
            continue
        first = title.split(" ")[0].rsplit("/", 1)[-1]
        # A script's title is its interpreter; the kernel knows it by its own name.
        script = first.startswith("python") or not first
        running.append((int(entry.name), name if script else first))
    return running


def listeners(names: Mapping[int, str], proc: Path = Path("/proc")) -> dict[int, str] | None:
    """TCP port of this network namespace to the name of the listener, empty if unknown."""
    sockets: dict[str, int] = {}
    seen = False
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        seen = True
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN:
                sockets[fields[9]] = int(fields[1].rpartition(":")[2], 16)
    if not seen:
        return None
    holders = dict.fromkeys(sockets.values(), "")
    if holders:
        holders |= _holders(sockets, names, proc)
    return holders


def _holders(sockets: Mapping[str, int], names: Mapping[int, str], proc: Path) -> dict[int, str]:
    holders = {}
    for pid, name in names.items():
        try:
            for descriptor in (proc / str(pid) / "fd").iterdir():
                target = os.readlink(descriptor)
                if target.startswith("socket:[") and target[8:-1] in sockets:
                    holders[sockets[target[8:-1]]] = name
        except OSError:
            continue
    return holders


def unmanaged(folder: Path) -> bool | None:
    """Whether NetworkManager's files name `cali*` unmanaged; None where there are none."""
    if not folder.is_dir():
        return None
    texts = (value for _, value in _settings(folder, "NetworkManager.conf", "unmanaged-devices"))
    return any("cali" in text for text in texts)


def foreign_routes_kept(folder: Path) -> bool | None:
    """Whether systemd-networkd leaves foreign routes alone; None where it is not set up."""
    if not folder.is_dir():
        return None
    values = [value for _, value in _settings(folder, "networkd.conf", "manageforeignroutes")]
    return bool(values) and values[-1].strip().lower() in ("no", "false", "0", "off")


def _settings(folder: Path, main: str, option: str) -> list[tuple[str, str]]:
    """(section, value) of an option in a file and the `.d`/`conf.d` folder beside it, in order."""
    files = [folder / main]
    for extra in (folder / "conf.d", folder / f"{main}.d"):
        files += sorted(extra.glob("*.conf"))
    values = []
    for file in files:
        parser = ConfigParser(strict=False, interpolation=None, allow_no_value=True)
        try:
            parser.read_string(file.read_text(errors="replace"))
        except (OSError, ConfigError):
            continue
        for section in parser.sections():
            value = parser.get(section, option, fallback=None)
            if value is not None:
                values.append((section, value))
    return values
