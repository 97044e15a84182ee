"""`node diags`: what this machine can tell of its network, in one archive.

Programs are run first and the datastore is asked last: gRPC wants no fork after its start.
Tested in `tests/calicoctl/test_diags.py`, with secrets planted in every source.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from calicoctl import versions
from calicoctl.diags import files, programs, store
from calicoctl.diags.archive import Archive, stamp
from calicoctl.diags.redact import Redactor
from calicoctl.node import program, report
from libcalico import apiconfig
from libcalico.errors import MuslinError
from libcalico.process import paths
from libcalico.process.progress import Progress

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "system/date": ("date", "-Ins"),
    "system/hostname": ("hostname",),
    "system/uname": ("uname", "-a"),
    "system/uptime": ("uptime",),
    "system/time": ("timedatectl",),
    "system/df": ("df", "-h"),
    "system/free": ("free", "-m"),
    "system/processes": ("ps", "-eo", "pid,ppid,user,lstart,rss,pcpu,args", "-ww"),
    "system/modules": ("lsmod",),
    "system/sysctl": ("sysctl", "-a", "--pattern", r"^(net\.|fs\.inotify|fs\.file|kernel\.pid)"),
    "system/dmesg": ("dmesg", "-T"),
    "system/units": ("systemctl", "list-units", "--no-pager", "--type=service"),
    "network/links": ("ip", "-s", "-d", "link"),
    "network/addresses": ("ip", "address"),
    "network/routes4": ("ip", "-4", "route", "show", "table", "all"),
    "network/routes6": ("ip", "-6", "route", "show", "table", "all"),
    "network/rules4": ("ip", "-4", "rule"),
    "network/rules6": ("ip", "-6", "rule"),
    "network/neighbours": ("ip", "neighbour"),
    "network/tunnels": ("ip", "-d", "tunnel"),
    "network/fdb": ("bridge", "fdb"),
    "network/sockets": ("ss", "-tunlp"),
    "network/bgp-sockets": ("ss", "-tnpi", "( sport = :179 or dport = :179 )"),
    "rules/iptables-nft": ("iptables-nft-save", "-c"),
    "rules/iptables-legacy": ("iptables-legacy-save", "-c"),
    "rules/ip6tables-nft": ("ip6tables-nft-save", "-c"),
    "rules/ip6tables-legacy": ("ip6tables-legacy-save", "-c"),
    "rules/nftables": ("nft", "list", "ruleset"),
    "rules/ipsets": ("ipset", "list"),
    "rules/conntrack": ("conntrack", "-S"),
    "logs/journal-calico-node": ("journalctl", "-u", "calico-node", "-n", "20000", "--no-pager"),
    "logs/journal-kubelet": ("journalctl", "-u", "kubelet", "-n", "5000", "--no-pager"),
    "logs/journal-containerd": ("journalctl", "-u", "containerd", "-n", "5000", "--no-pager"),
    "logs/container-calico-node": ("docker", "logs", "--tail", "20000", "calico-node"),
}
"""File in the archive to the program whose output it is."""

AT_ONCE = 4


async def collect(
    log_dir: Path, config_file: str | None, output: Path | None, progress: Progress
) -> Archive:
    """Write the archive; returns it finished. Raises `MuslinError` when it cannot be written."""
    node = _node_name()
    name = f"diags-{node}-{stamp()}"
    config, config_error = _configuration(config_file)
    environs = files.environments()
    redactor = Redactor(
        files.secrets(config, [dict(os.environ), *environs.values()], _settings(config_file))
    )
    archive = _opened(
        output or Path(tempfile.mkdtemp(prefix="calico-")) / f"{name}.tar.gz", name, redactor
    )
    try:
        await _programs(archive, progress)
        progress.begin("reading files")
        _files(archive, log_dir, config_file, environs)
        if config is None:
            archive.missing("datastore", config_error)
        else:
            progress.begin("reading the datastore")
            await store.add(archive, config)
        archive.finish({"node": node, "version": versions.CALICO, "time": stamp()})
    except BaseException:
        archive.abandon()
        raise
    return archive


def _opened(path: Path, root: str, redactor: Redactor) -> Archive:
    try:
        return Archive(path, root, redactor)
    except OSError as error:
        raise MuslinError(f"{path} cannot be written: {error.strerror}") from None


def _node_name() -> str:
    try:
        return paths.NODENAME.read_text().strip() or socket.gethostname()
    except OSError:
        return os.environ.get("NODENAME") or socket.gethostname()


def _configuration(path: str | None) -> tuple[apiconfig.DatastoreConfig | None, str]:
    try:
        return apiconfig.load(path, os.environ), ""
    except MuslinError as error:
        return None, str(error)


def _settings(config_file: str | None) -> list[Path]:
    """The files that hold settings, and perhaps secrets."""
    files = [path for folder in (paths.CNI_NET, paths.CONFIG) for path in _inside(folder)]
    named = [config_file, os.environ.get("KUBECONFIG"), str(Path.home() / ".kube" / "config")]
    return files + [Path(one) for one in named if one]


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.rglob("*") if path.is_file())
    except OSError:
        return []


async def _programs(archive: Archive, progress: Progress) -> None:
    turn = asyncio.Semaphore(AT_ONCE)
    calico_node = program.find()
    commands = dict(COMMANDS)
    if calico_node is not None:
        commands["system/checksystem.json"] = (calico_node, "checksystem", "--output", "json")

    async def one(words: tuple[str, ...]) -> programs.Output:
        async with turn:
            output = await programs.run(words)
        progress.done += 1
        return output

    progress.begin("running programs", len(commands))
    outputs = await asyncio.gather(*(one(words) for words in commands.values()))
    for (name, words), output in zip(commands.items(), outputs, strict=True):
        source = " ".join(words)
        # A check that failed ends with status 1 and has told why.
        if output.text:
            archive.add(name, output.text, source=source)
        elif output.error:
            archive.missing(name, output.error, source)
        else:
            archive.add(name, "", source=source)


def _files(
    archive: Archive,
    log_dir: Path,
    config_file: str | None,
    environs: Mapping[str, Mapping[str, str]],
) -> None:
    files.add_tree(archive, log_dir, "logs/calico")
    files.add_tree(archive, paths.STATUS, "status")
    files.add_tree(archive, paths.LIB, "lib")
    files.add_tree(archive, paths.CNI_NET, "cni")
    for path in _inside(paths.CONFIG):
        if path.suffix in (".cfg", ".conf", ".yaml", ".yml", ".json"):
            files.add_file(archive, path, f"config/{path.relative_to(paths.CONFIG)}")
    if config_file is not None:
        files.add_file(archive, Path(config_file), f"config/{Path(config_file).name}")
    for name, environ in sorted(environs.items()):
        archive.add(
            f"environment/{name}.json", json.dumps(environ), form="document", source="/proc"
        )
    archive.add("status/node.json", report.as_json(report.gather()), form="document")


def run(log_dir: str, config_file: str | None, output: str | None) -> None:
    """Collect and say where it lies."""
    file = Path(output) if output else None
    with Progress("node diags") as progress:
        archive = asyncio.run(collect(Path(log_dir), config_file, file, progress))
    for name, why in archive.errors():
        if name == "datastore":
            print(f"WARNING: the datastore is not in it: {why}", file=sys.stderr)
    if os.geteuid() != 0:
        print("WARNING: run it as root for rules, sets and all processes", file=sys.stderr)
    print(f"Diags saved to {archive.path}")
