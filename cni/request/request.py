"""A call of the plugin, checked and typed: what the daemon works on.

The executable checks environment and configuration before it connects, so that a bad call
fails the same way with or without a daemon. The daemon checks again with this module: it
trusts no release but its own. Both, and the executable's Python twin, answer the one
table in `cni/vectors/`.

Invariant REQ-1: all that check a call give the same answer to every entry of `cni/vectors/`.

Order of the checks (ENV-28), the earliest fault wins: environment (4), JSON (6), network
name (7), command and version (4, 6 or 1), then our own configuration (7).

Pure. Source: docs/reference/cni.md#environment, #configuration, #cni_args. Tested in
`tests/cni/test_request.py` and `tests/cni/test_vectors.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache

import msgspec

from cni.request.config import NetworkConfig, parse_config
from cni.request.environment import NAME, check_environment, environment_error, parse_args
from cni.request.errors import CNIError, Code
from cni.request.result import SUPPORTED_VERSIONS
from libcalico.errors import NO_DOCUMENT

MAX_DEPTH = 512
COMMON_BYTES = 16384
"""Configurations up to this size are remembered as they were understood."""
VERSION_PART = re.compile(r"[+-]?[0-9]{1,9}")


class Command(StrEnum):
    """The verbs of `CNI_COMMAND`."""

    ADD = "ADD"
    DEL = "DEL"
    CHECK = "CHECK"
    GC = "GC"
    STATUS = "STATUS"
    VERSION = "VERSION"


SINCE: Mapping[str, str] = {"CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}


class Request(msgspec.Struct, frozen=True):
    """One checked call.

    `plugin` is `calico` or `calico-ipam`, by the name the executable was called by. `args`
    holds CNI_ARGS without `IgnoreUnknown`. `netns` is the path as the runtime gave it, for the
    result only: never opened (ENV-23). `env` and `stdin` are raw, for delegates.
    """

    plugin: str
    command: Command
    container_id: str
    ifname: str
    netns: str
    config: NetworkConfig
    args: Mapping[str, str] = {}
    path: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    stdin: str = ""

    @property
    def pod(self) -> tuple[str, str] | None:
        """(namespace, name) of the Kubernetes pod, or None when it is none (ARG-07)."""
        namespace, name = self.args.get("K8S_POD_NAMESPACE"), self.args.get("K8S_POD_NAME")
        return (namespace, name) if namespace and name else None

    @property
    def requested_ips(self) -> tuple[str, ...]:
        """Addresses asked for: `runtimeConfig.ips`, else `args.cni.ips`, else CNI_ARGS `IP`."""
        if self.config.requested_ips:
            return self.config.requested_ips
        address = self.args.get("IP", "")
        return tuple(part.strip() for part in address.split(",") if part.strip())


def parse_request(argv0: str, env: Mapping[str, str], stdin: str | bytes) -> Request:
    """Return the typed request; raises CNIError with the code and text that the runtime gets.

    VERSION is answered by the executable, and is an unknown command here.
    """
    command = check_environment(env)
    config = (_known_config if len(stdin) <= COMMON_BYTES else _config)(stdin, command)
    return Request(
        plugin=argv0.rsplit("/", 1)[-1],
        command=Command(command),
        container_id=env.get("CNI_CONTAINERID", ""),
        ifname=env.get("CNI_IFNAME", ""),
        netns=env.get("CNI_NETNS", ""),
        config=config,
        args=parse_args(env.get("CNI_ARGS", ""), command),
        path=tuple(part for part in env.get("CNI_PATH", "").split(":") if part),
        env=env,
        stdin=stdin if isinstance(stdin, str) else stdin.decode(),
    )


def _config(stdin: str | bytes, command: str) -> NetworkConfig:
    document = decode_document(stdin)
    check_name(document)
    check_command(command)
    check_version(command, document)
    lenient = command in ("DEL", "GC", "STATUS")
    check_types(document, lenient=command == "DEL")
    return parse_config(document, lenient=lenient)


# A node's configuration is the same for nearly all of its pods, and never changed once read.
_known_config = lru_cache(maxsize=32)(_config)


def request_version(stdin: str | bytes) -> str:
    """Return the `cniVersion` to put into an error object when `parse_request` failed."""
    try:
        version = decode_document(stdin).get("cniVersion")
    except CNIError:
        return SUPPORTED_VERSIONS[-1]
    if version is None or version == "":
        return "0.2.0"
    if isinstance(version, str) and len(version.encode()) <= 64:
        return version
    return SUPPORTED_VERSIONS[-1]


def decode_document(stdin: str | bytes) -> dict[str, object]:
    """Return the configuration's object; raises CNIError 6 without repeating any of it."""
    try:
        document = msgspec.json.decode(stdin)
        too_deep = _depth(document) > MAX_DEPTH
    except RecursionError as error:
        raise _decoding("nested too deeply") from error
    except NO_DOCUMENT as error:
        raise _decoding(str(error)) from error
    if too_deep:
        raise _decoding("nested too deeply")
    if not isinstance(document, dict):
        raise _decoding("not a JSON object")
    return document


def _depth(value: object) -> int:
    """How many objects and lists lie inside one another."""
    depth = 0
    level: list[object] = [value]
    while True:
        nested = [item for item in level if isinstance(item, dict | list)]
        if not nested:
            return depth
        depth += 1
        level = [
            child
            for item in nested
            for child in (item.values() if isinstance(item, dict) else item)
        ]


def check_name(document: Mapping[str, object]) -> None:
    """Check the network's name (CFG-04)."""
    name = document.get("name")
    if name is not None and not isinstance(name, str):
        raise _decoding("name is not a string")
    if not name:
        raise CNIError(Code.INVALID_CONFIG, "missing network name")
    if not NAME.fullmatch(name):
        raise CNIError(Code.INVALID_CONFIG, "invalid characters found in network name", name)


def check_command(command: str) -> None:
    """Refuse a command that the specification does not know (ENV-06)."""
    if command not in Command.__members__ or command == Command.VERSION:
        raise environment_error(f"unknown CNI_COMMAND: {command}")


def check_version(command: str, document: Mapping[str, object]) -> None:
    """Check that we speak `cniVersion` and that it knows the command (VER-06 to VER-10)."""
    version = document.get("cniVersion")
    if version is not None and not isinstance(version, str):
        raise _decoding("cniVersion is not a string")
    version = version or "0.1.0"
    since = SINCE.get(command)
    if since is not None and _parsed(version) < _parsed(since):
        raise CNIError(Code.INCOMPATIBLE_VERSION, f"config version does not allow {command}")
    if version not in SUPPORTED_VERSIONS:
        supported = " ".join(f'"{known}"' for known in SUPPORTED_VERSIONS)
        raise CNIError(
            Code.INCOMPATIBLE_VERSION,
            "incompatible CNI versions",
            f'config is "{version}", plugin supports [{supported}]',
        )


def _parsed(version: str) -> tuple[int, ...]:
    parts = version.split(".")
    if len(parts) > 3 or not all(VERSION_PART.fullmatch(part) for part in parts):
        raise CNIError(Code.DECODING_FAILURE, "cniVersion is not a version", version)
    return tuple(int(part) for part in parts) + (0,) * (3 - len(parts))


def check_types(document: Mapping[str, object], *, lenient: bool = False) -> None:
    """Refuse a whole conflist, and plugin types with a slash (CFG-20, DLG-01)."""
    if lenient:
        return
    if isinstance(document.get("plugins"), list):
        raise CNIError(
            Code.INVALID_CONFIG,
            "stdin holds a whole network list (it has plugins); a plugin gets one plugin's object",
        )
    ipam = document.get("ipam")
    inner = ipam.get("type") if isinstance(ipam, Mapping) else None
    for where, value in (("type", document.get("type")), ("ipam.type", inner)):
        if isinstance(value, str) and ("/" in value or "\\" in value):
            raise CNIError(
                Code.INVALID_CONFIG,
                f"invalid network configuration: {where} contains a slash",
                value,
            )


def _decoding(why: str) -> CNIError:
    return CNIError(Code.DECODING_FAILURE, f"error unmarshall network config: {why}")
