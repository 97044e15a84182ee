"""Facts about the kubelet, kube-proxy and the runtime that run here: their flags and files."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from libcalico import parsing
from node.checks.facts import CNIFile, KubeProxy, Kubernetes

_CONFIGURATIONS = (".conf", ".conflist", ".json")
_CONTAINERD = (
    "etc/containerd/config.toml",
    "var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "var/lib/rancher/rke2/agent/etc/containerd/config.toml",
)


def read(net_dir: Path, bin_dir: Path, root: Path = Path("/")) -> Kubernetes:
    """The facts; `root` is where the machine's file system begins."""
    commands = command_lines(root / "proc")
    return Kubernetes(
        kubelet=any(name in ("kubelet", "k3s", "rke2") for name, _, _ in commands),
        kube_proxy=kube_proxy(commands, root),
        files=cni_files(net_dir),
        plugins=_names(bin_dir),
        directories=directories(commands, root),
        unheard=unheard(commands),
        net_dir=str(net_dir),
        bin_dir=str(bin_dir),
    )


_NET_DIR, _BIN_DIR = "/etc/cni/net.d", "/opt/cni/bin"
"""containerd's default directories (its documentation of the CRI plugin)."""
Tree = Mapping[str, object]
"""A table of a TOML or YAML file."""
Command = tuple[str, Mapping[str, str], int]
"""Program, its flags, its process id."""


def command_lines(proc: Path) -> list[Command]:
    """The Kubernetes programs that run here, with their flags."""
    commands: list[Command] = []
    if not proc.is_dir():
        return commands
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        name = words[0].rsplit("/", 1)[-1].split(" ")[0]
        if name in ("kubelet", "kube-proxy", "k3s", "rke2", "containerd", "crio"):
            commands.append((name, flags(words[1:]), int(entry.name)))
    return commands


def flags(words: list[str]) -> dict[str, str]:
    """The flags `--a=b`, `--a b`, a bare `--a` (true) and containerd's `-c b`; the last counts."""
    parsed: dict[str, str] = {}
    words = ["--config" if word == "-c" else word for word in words]
    for place, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name, equals, value = word[2:].partition("=")
        following = words[place + 1] if place + 1 < len(words) else ""
        if not equals:
            value = following if following and not following.startswith("-") else "true"
        if name == "kube-proxy-arg":
            inner, _, value = value.partition("=")
            name = inner.lstrip("-")
        parsed[name] = value
    return parsed


def kube_proxy(commands: list[Command], root: Path) -> KubeProxy | None:
    """The settings of the kube-proxy that runs here: its file, then its flags over it."""
    for name, given, pid in commands:
        if name not in ("kube-proxy", "k3s"):
            continue
        tree: Tree = {}
        if given.get("config") and name == "kube-proxy":
            tree = _yaml(root / "proc" / str(pid) / "root" / given["config"].lstrip("/"))
        iptables = _table(tree.get("iptables"))
        hides = given.get("masquerade-all", str(iptables.get("masqueradeAll", False)))
        return KubeProxy(
            cluster_cidr=given.get("cluster-cidr", str(tree.get("clusterCIDR") or "")),
            masquerade_all=hides.lower() == "true",
            mode=given.get("proxy-mode", str(tree.get("mode") or "")),
        )
    return None


def _yaml(path: Path) -> Tree:
    try:
        tree = parsing.yaml_tree(path.read_text(errors="replace"))
    except (OSError, ValueError):
        return {}
    return _table(tree)


def cni_files(folder: Path) -> tuple[CNIFile, ...]:
    """The configurations of a directory in the order in which a runtime reads them."""
    try:
        names = sorted(p for p in folder.iterdir() if p.suffix in _CONFIGURATIONS and p.is_file())
    except OSError:
        return ()
    return tuple(_cni_file(path) for path in names)


def _cni_file(path: Path) -> CNIFile:
    try:
        tree = json.loads(path.read_text())
        plugins = tree.get("plugins", [tree])
        types = [str(one["type"]) for one in plugins]
        types += [
            str(one["ipam"]["type"]) for one in plugins if (one.get("ipam") or {}).get("type")
        ]
    except PermissionError:
        return CNIFile(name=path.name, error="cannot be read without root")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return CNIFile(name=path.name, error=f"not a CNI configuration: {error}")
    return CNIFile(name=path.name, types=tuple(dict.fromkeys(types)))


def _names(folder: Path) -> frozenset[str]:
    try:
        return frozenset(path.name for path in folder.iterdir())
    except OSError:
        return frozenset()


def directories(commands: list[Command], root: Path) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Program to its (configuration, binaries) directories, by flags and configuration files."""
    by_program: dict[str, tuple[str, tuple[str, ...]]] = {}
    for name, given, _ in commands:
        net, binaries = given.get("cni-conf-dir", ""), given.get("cni-bin-dir", "")
        if name == "kubelet" and (net or binaries):
            by_program["kubelet"] = (net, tuple(binaries.split(",")) if binaries else ())
    running, tree = _containerd(commands, root)
    net, binary_dirs = containerd_cni(tree)
    if net or binary_dirs or running:
        by_program["containerd"] = (net or _NET_DIR, binary_dirs or (_BIN_DIR,))
    files = [root / "etc/crio/crio.conf", *sorted((root / "etc/crio/crio.conf.d").glob("*.conf"))]
    for file in files:
        network = _table(_table((_toml(file) or {}).get("crio")).get("network"))
        if network:
            plugin_dirs = _texts(network.get("plugin_dirs")) or _texts(network.get("plugin_dir"))
            by_program["cri-o"] = (str(network.get("network_dir") or ""), plugin_dirs)
    return by_program


def unheard(commands: list[Command]) -> frozenset[str]:
    """The programs whose directories have no effect: a kubelet's were dockershim's, up to 1.23."""
    remote = any(
        name == "kubelet" and given.get("container-runtime") == "remote"
        for name, given, _ in commands
    )
    return frozenset({"kubelet"}) if remote else frozenset()


def _containerd(commands: list[Command], root: Path) -> tuple[bool, Tree]:
    """Whether containerd runs, and its configuration: of its flag, or of a usual path."""
    running = [(given, pid) for name, given, pid in commands if name == "containerd"]
    for given, pid in running:
        if config_file := given.get("config"):
            # Its root may be another one than ours.
            inside = _toml(root / "proc" / str(pid) / "root" / config_file.lstrip("/"))
            return True, inside or {}
    for place in _CONTAINERD:
        tree = _toml(root / place)
        if tree is not None:
            return bool(running), tree
    return bool(running), {}


def containerd_cni(tree: Tree) -> tuple[str, tuple[str, ...]]:
    """(configuration, binaries) directories of containerd's CRI plugin, versions 1 to 3."""
    for name, plugin in _table(tree.get("plugins")).items():
        if not re.fullmatch(r"cri|io\.containerd\.(grpc\.v1\.cri|cri\.v1\.runtime)", name):
            continue
        cni = _table(_table(plugin).get("cni"))
        binaries = _texts(cni.get("bin_dirs")) or _texts(cni.get("bin_dir"))
        return str(cni.get("conf_dir") or ""), binaries
    return "", ()


def _toml(path: Path) -> Tree | None:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return None


def _table(value: object) -> Tree:
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> tuple[str, ...]:
    """A text, or a list of them, as a tuple."""
    if isinstance(value, list):
        return tuple(map(str, value))
    return (str(value),) if value else ()
