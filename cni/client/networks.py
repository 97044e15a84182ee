"""A network as it lies in the configuration directory: a list of plugins, or a single one.

Lists (`.conflist`) are looked through before single plugins (`.conf`, `.json`), each sorted by
name, for the network's name; a single plugin is wrapped into a list of one. A file that cannot
be read as what its suffix says ends the search with an error, as in the runtimes: the operator
would otherwise get another network than the one in front.

Source: CNI specification 1.1.0 section 1, conformance LIB-08, LIB-09, VER-12, CHK-10.
Tested in tests/cni_conformance/test_library.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cni.request.result import NEWEST, SUPPORTED_VERSIONS
from libcalico.errors import NO_DOCUMENT, MuslinError

LIST_SUFFIXES = (".conflist",)
SINGLE_SUFFIXES = (".conf", ".json")


class NetworkError(MuslinError):
    """A network's file cannot be used, or there is none."""


@dataclass(frozen=True, slots=True)
class Network:
    """A list of plugins. `version` is the one that is used; `source` what the cache keeps."""

    name: str
    version: str
    plugins: tuple[Mapping[str, object], ...]
    source: bytes
    disable_check: bool = False
    disable_gc: bool = False

    def speaks(self, since: str) -> bool:
        """Whether the version that is used is `since` or later; none means 0.1.0."""
        return version_key(self.version) >= version_key(since)


def version_key(version: str) -> tuple[int, ...]:
    """For comparing versions; what is no version is as old as 0.1.0. Pure."""
    try:
        return tuple(int(part) for part in version.split("."))
    except ValueError:
        return (0, 1, 0)


def files(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """The files of a configuration directory with these suffixes, sorted. Raises OSError."""
    try:
        return sorted(path for path in folder.iterdir() if path.suffix in suffixes)
    except FileNotFoundError:
        return []


def load(folder: Path, name: str) -> Network:
    """The network called `name`. Raises NetworkError, OSError."""
    lists, singles = files(folder, LIST_SUFFIXES), files(folder, SINGLE_SUFFIXES)
    if not lists and not singles:
        raise NetworkError(f"no net configurations found in {folder}")
    for path in lists:
        if (network := parse(path.read_bytes(), str(path), folder)).name == name:
            return network
    for path in singles:
        if (network := parse_single(path.read_bytes(), str(path))).name == name:
            return network
    raise NetworkError(f"no net configuration with name {name!r} in {folder}")


def parse(raw: bytes, where: str = "configuration list", folder: Path | None = None) -> Network:
    """The list in `raw`. With `folder`, plugins of `folder/NAME/*.conf` are appended (LIB-09).

    Raises NetworkError naming `where` and the key, OSError.
    """
    tree = _object(raw, where)
    name = _word(tree, "name", where)
    if not name:
        raise NetworkError(f"{where}: no name")
    plugins = tree.get("plugins")
    alone = _flag(tree, "loadOnlyInlinedPlugins", where)
    if plugins is None and (alone or folder is None):
        raise NetworkError(f"{where}: no 'plugins' key")
    if plugins is not None and not isinstance(plugins, list):
        raise NetworkError(f"{where}: plugins: must be a list")
    chosen = [_plugin(plugin, f"{where}: plugins[{n}]") for n, plugin in enumerate(plugins or ())]
    if folder is not None and not alone:
        for path in files(folder / name, (".conf",)):
            chosen.append(_plugin(_object(path.read_bytes(), str(path)), str(path)))
    if not chosen:
        raise NetworkError(f"{where}: no plugins in list")
    return Network(
        name,
        _version(tree, where),
        tuple(chosen),
        raw,
        _flag(tree, "disableCheck", where),
        _flag(tree, "disableGC", where),
    )


def parse_single(raw: bytes, where: str = "configuration") -> Network:
    """The single plugin in `raw`, as a list of one. Raises NetworkError."""
    tree = _plugin(_object(raw, where), where)
    name, version = _word(tree, "name", where), _word(tree, "cniVersion", where)
    source = {"name": name, "cniVersion": version, "plugins": [tree]}
    return Network(name, version, (tree,), msgspec.json.encode(source))


def _object(raw: bytes, where: str) -> dict[str, object]:
    try:
        tree = msgspec.json.decode(raw)
    except NO_DOCUMENT as problem:
        raise NetworkError(f"{where}: error parsing configuration: {problem}") from None
    if not isinstance(tree, dict):
        raise NetworkError(f"{where}: error parsing configuration: it is not an object")
    return tree


def _plugin(tree: object, where: str) -> dict[str, object]:
    if not isinstance(tree, dict):
        raise NetworkError(f"{where}: must be an object")
    if not _word(tree, "type", where):
        raise NetworkError(f"{where}: error parsing configuration: missing 'type'")
    return tree


def _version(tree: Mapping[str, object], where: str) -> str:
    """`cniVersion`, or the newest of `cniVersions` that we speak (VER-12)."""
    version, more = _word(tree, "cniVersion", where), tree.get("cniVersions")
    if more is None:
        return version
    if not isinstance(more, list) or not all(isinstance(one, str) for one in more):
        raise NetworkError(f"{where}: cniVersions: must be a list of strings")
    spoken = [one for one in [version, *more] if one in SUPPORTED_VERSIONS]
    if not spoken:
        raise NetworkError(f"{where}: cniVersions: none of {more} is {NEWEST} or older")
    return str(max(spoken, key=version_key))


def _word(tree: Mapping[str, object], key: str, where: str) -> str:
    value = tree.get(key, "")
    if value is None:
        return ""
    if not isinstance(value, str):
        raise NetworkError(f"{where}: {key}: must be a string")
    return value


def _flag(tree: Mapping[str, object], key: str, where: str) -> bool:
    """A boolean, or the text of one: version 0.4.0 had `disableCheck` as text."""
    value = tree.get(key)
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise NetworkError(f"{where}: {key}: {value!r} is neither true nor false")
