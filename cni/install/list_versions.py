"""The versions of a network list: those that every plugin of it speaks (INS-11).

Tested in tests/cni/test_install_variables.py.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from cni.client import NetworkError, networks, plugins
from cni.install.binaries import NAMES
from cni.install.settings import Settings
from cni.request.errors import CNIError
from cni.request.result import SUPPORTED_VERSIONS

log = logging.getLogger(__name__)


class NetworkList(TypedDict, total=False):
    """The members of a network list that we set or read; a template may have more."""

    name: str
    cniVersion: str
    cniVersions: list[str]
    plugins: list[dict[str, object]]


def settle_version(
    document: NetworkList, spoken: Mapping[str, Sequence[str]], *, offer_newest: bool = False
) -> NetworkList:
    """The list with versions that every plugin speaks (INS-11). Pure.

    `spoken` holds what each plugin said; one that is missing is unknown, and keeps a list from
    offering more. Raises NetworkError when the plugins have no version in common.
    """
    types = [str(plugin["type"]) for plugin in document["plugins"]]
    said = [set(spoken[one]) for one in types if one in spoken]
    common = [one for one in SUPPORTED_VERSIONS if all(one in each for each in said)]
    if not common:
        raise NetworkError(f"the plugins {', '.join(types)} speak no version in common")
    settled = document.copy()
    version = document.get("cniVersion") or "0.1.0"
    if version in SUPPORTED_VERSIONS and version not in common:
        older = [one for one in common if networks.version_key(one) < networks.version_key(version)]
        settled["cniVersion"] = max(older or common, key=networks.version_key)
        log.warning(
            "cniVersion %s becomes %s: not every plugin of %s speaks it",
            version, settled["cniVersion"], ", ".join(types),
        )  # fmt: skip
    if "cniVersions" in document:
        settled["cniVersions"] = [one for one in document["cniVersions"] if one in common]
    elif offer_newest and len(said) == len(types) and SUPPORTED_VERSIONS[-1] in common:
        settled["cniVersions"] = [settled["cniVersion"], SUPPORTED_VERSIONS[-1]]
    return settled


def find_plugin(settings: Settings, name: str) -> Path | None:
    """Where the executable of a plugin is, None where it is in no directory."""
    try:
        return plugins.find(name, settings.bin_dirs)
    except CNIError:
        return None


def spoken_versions(settings: Settings, types: set[str]) -> dict[str, list[str]]:
    """The versions that each plugin speaks; one that is missing or silent has none."""
    spoken: dict[str, list[str]] = {name: list(SUPPORTED_VERSIONS) for name in NAMES}
    for name in sorted(types - spoken.keys()):
        program = find_plugin(settings, name)
        if program is None:
            places = ", ".join(map(str, settings.bin_dirs))
            log.warning("the plugin %s is not in %s: pods will not start without it", name, places)
            continue
        try:
            spoken[name] = plugins.versions(program)
        except CNIError as error:
            log.warning("the plugin %s does not say its versions: %s", name, error)
    return spoken
