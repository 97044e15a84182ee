"""The verbs on a whole network: every plugin in order, each with what the one before found.

Invariants (tests/cni_conformance/test_library.py):
  CLI-1  A plugin gets its own object with `name`, `cniVersion`, `prevResult` and the
         capabilities that it declares and the caller supplied; nothing else of the list.
  CLI-2  ADD stops at the first error and undoes nothing: the caller sends DEL.
  CLI-3  DEL runs in reverse, with the remembered result; what is remembered goes last.

Source: CNI specification 1.1.0 section 3, conformance LIB-01 to LIB-10, CAP-01, PRV-*.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from cni.client import plugins
from cni.client.cache import DEFAULT, KIND, Cache, Cached
from cni.client.documents import configured, typed
from cni.client.networks import Network
from cni.request.environment import NAME
from cni.request.errors import CNIError, Code
from cni.request.result_encoding import ResultDocument
from libcalico.errors import MuslinError


class PluginFailed(MuslinError):
    """A plugin of the chain did not do what was asked; `error` is what it said."""

    def __init__(self, plugin: str, verb: str, error: CNIError) -> None:
        self.plugin, self.verb, self.error = plugin, verb, error
        super().__init__(f'plugin type="{plugin}" failed ({verb}): {error}')


@dataclass(frozen=True, slots=True)
class Attachment:
    """A container in a network: `args` become CNI_ARGS, `capabilities` perhaps `runtimeConfig`."""

    container_id: str
    netns: str
    ifname: str = "eth0"
    args: tuple[tuple[str, str], ...] = ()
    capabilities: Mapping[str, object] = field(default_factory=dict)

    def check(self) -> None:
        """Raises CNIError 3 or 4 before any plugin runs (LIB-10)."""
        if not self.container_id:
            raise CNIError(Code.UNKNOWN_CONTAINER, "missing containerID")
        if not NAME.fullmatch(self.container_id):
            raise CNIError(
                Code.INVALID_ENVIRONMENT, "invalid characters in containerID", self.container_id
            )
        if rule := _ifname_fault(self.ifname):
            raise CNIError(Code.INVALID_ENVIRONMENT, rule, self.ifname)


@dataclass(frozen=True)
class Client:
    """A runtime's side. `path` as CNI_PATH; `environ` is handed on (ours unless given).

    `timeout` in seconds for each plugin, none for no limit. Methods raise PluginFailed,
    CNIError and OSError.
    """

    path: Sequence[str | Path]
    cache_folder: Path = DEFAULT
    environ: Mapping[str, str] | None = None
    timeout: float | None = None

    @property
    def cache(self) -> Cache:
        """What was attached."""
        return Cache(self.cache_folder)

    def add(self, network: Network, to: Attachment) -> ResultDocument:
        """Run ADD through the chain; returns the last result and remembers it."""
        _check(network, to)
        result: ResultDocument | None = None
        for plugin in network.plugins:
            config = configured(network, plugin, result, to.capabilities)
            answer = self._call(plugin, "ADD", config, to)
            try:
                result = typed(answer, network.version)
            except CNIError as error:
                raise PluginFailed(str(plugin["type"]), "add", error) from error
        assert result is not None
        self.cache.keep(
            Cached(
                containerId=to.container_id,
                ifName=to.ifname,
                networkName=network.name,
                config=network.source,
                netns=to.netns,
                cniArgs=list(to.args),
                capabilityArgs=dict(to.capabilities),
                result=msgspec.Raw(msgspec.json.encode(result)),
                kind=KIND,
            )
        )
        return result

    def check(self, network: Network, to: Attachment) -> None:
        """Run CHECK through the chain with the remembered result (LIB-04)."""
        _check(network, to)
        if not network.speaks("0.4.0"):
            raise CNIError(
                Code.INVALID_CONFIG,
                f"configuration version {network.version!r} does not support CHECK",
            )
        if network.disable_check:
            return
        result = self._remembered(network, to)
        if result is None:
            raise CNIError(
                Code.UNKNOWN_CONTAINER, f"failed to get network {network.name!r} cached result"
            )
        for plugin in network.plugins:
            config = configured(network, plugin, result, to.capabilities)
            self._call(plugin, "CHECK", config, to)

    def delete(self, network: Network, to: Attachment) -> None:
        """Run DEL through the chain in reverse; stops at the first error (LIB-03)."""
        _check(network, to)
        result = self._remembered(network, to) if network.speaks("0.4.0") else None
        for plugin in reversed(network.plugins):
            config = configured(network, plugin, result, to.capabilities)
            self._call(plugin, "DEL", config, to)
        self.cache.drop(network.name, to.container_id, to.ifname)

    def gc(self, network: Network, valid: Collection[tuple[str, str]] | None = None) -> None:
        """DEL what is remembered and not in `valid` (container, interface), then run GC.

        None passes no list to the plugins (GC-06). All errors are collected (LIB-05).
        """
        if network.disable_gc:
            return
        errors: list[str] = []
        for entry in self.cache.of(network.name):
            if (entry.containerId, entry.ifName) in (valid or ()):
                continue
            stale = Attachment(
                entry.containerId,
                entry.netns,
                entry.ifName,
                tuple((key, value) for key, value in entry.cniArgs),
                entry.capabilityArgs,
            )
            try:
                self.delete(network, stale)
            except (PluginFailed, CNIError) as error:
                errors.append(
                    f"failed to delete stale attachment {stale.container_id}"
                    f" {stale.ifname}: {error}"
                )
        more: dict[str, object] = {}
        if valid is not None:
            listed = [{"containerID": one, "ifname": name} for one, name in sorted(valid)]
            # The second key is the one that the text of 1.1.0 had first (GC-02).
            more = {"cni.dev/valid-attachments": listed, "cni.dev/attachments": listed}
        for plugin in network.plugins if network.speaks("1.1.0") else ():
            try:
                self._call(plugin, "GC", configured(network, plugin) | more)
            except PluginFailed as error:
                errors.append(str(error))
        if errors:
            raise CNIError(Code.INTERNAL, "; ".join(errors))

    def status(self, network: Network) -> None:
        """Ask every plugin whether it is ready; the first that is not raises (LIB-06)."""
        for plugin in network.plugins if network.speaks("1.1.0") else ():
            self._call(plugin, "STATUS", configured(network, plugin))

    def versions(self, plugin: str) -> list[str]:
        """What a plugin says it speaks. Raises CNIError."""
        return plugins.versions(plugins.find(plugin, self.path), self.environ)

    def validate(self, network: Network) -> None:
        """Every plugin is there and speaks exactly the network's version (VER-14)."""
        config_version = network.version or "0.1.0"
        for plugin in network.plugins:
            spoken = self.versions(str(plugin["type"]))
            if config_version not in spoken:
                raise CNIError(
                    Code.INCOMPATIBLE_VERSION,
                    f"plugin {plugin['type']} does not support config version {config_version!r}",
                )

    def _remembered(self, network: Network, to: Attachment) -> ResultDocument | None:
        return self.cache.result(network.name, network.version, to.container_id, to.ifname)

    def _call(
        self,
        plugin: Mapping[str, object],
        command: str,
        config: Mapping[str, object],
        to: Attachment | None = None,
    ) -> bytes:
        to = to or Attachment("", "", "")
        base = os.environ if self.environ is None else self.environ
        env = {
            **base,
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": to.container_id,
            "CNI_NETNS": to.netns,
            "CNI_IFNAME": to.ifname,
            "CNI_ARGS": ";".join(f"{key}={value}" for key, value in to.args),
            "CNI_PATH": ":".join(map(str, self.path)),
        }
        name = str(plugin["type"])
        try:
            program = plugins.find(name, self.path)
            return plugins.run(program, env, msgspec.json.encode(config), self.timeout)
        except CNIError as error:
            verb = {"ADD": "add", "DEL": "delete"}.get(command, command.lower())
            raise PluginFailed(name, verb, error) from error


def _ifname_fault(name: str) -> str:
    if not name:
        return "interface name is empty"
    if len(name.encode()) > 15:
        return "interface name is too long"
    if name in (".", ".."):
        return "interface name is . or .."
    if any(character in "/:" or character.isspace() for character in name):
        return "interface name contains / or : or whitespace characters"
    return ""


def _check(network: Network, to: Attachment) -> None:
    if not NAME.fullmatch(network.name):
        raise CNIError(
            Code.INVALID_CONFIG, "invalid characters found in network name", repr(network.name)
        )
    to.check()
