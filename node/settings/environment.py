"""The variables that configure a node, under Calico's names.

A wrong value is an error that names the variable and what is allowed; it is never ignored. The
table of `node/settings/variables.py` has all variables with their readers.
Source: docs/reference/data-model.md#environment-of-a-node. Pure. Tested in
`tests/node/test_environment.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface, IPv6Interface, ip_interface
from pathlib import Path

from libcalico.errors import InvalidValue
from libcalico.model.base.numorstring import as_number
from libcalico.process import paths
from node.settings.pools import PoolSetting, pool_setting
from node.settings.values import flag, interval

IPInterface = IPv4Interface | IPv6Interface

AUTODETECT, NONE, UNSET = "autodetect", "none", ""
BACKENDS = ("bird", "vxlan", "none")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

FIRST_FOUND, INTERNAL_IP = "first-found", "kubernetes-internal-ip"
METHODS = {
    FIRST_FOUND: "",
    "interface=": "REGEX,...",
    "skip-interface=": "REGEX,...",
    "can-reach=": "HOST",
    "cidr=": "CIDR,...",
    INTERNAL_IP: "",
}
METHODS_TOLD = ", ".join(f"{method}{argument}" for method, argument in METHODS.items())
ALLOW_OVERLAP = "CALICO_POOL_ALLOW_OVERLAP"
CNI_ACCOUNT = "calico-cni-plugin"
POLL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class AddressSetting:
    """The setting of `IP` or `IP6`: `mode` is autodetect, none, explicit, or empty when unset.

    `address` is set for explicit; `has_mask`: it has a prefix length. `asked`: the method was
    named; without, a Kubernetes node's InternalIP comes before first-found.
    """

    mode: str
    method: str = FIRST_FOUND
    address: IPInterface | None = None
    has_mask: bool = False
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """The checked settings of the environment."""

    ipv4: AddressSetting
    ipv6: AddressSetting
    backend: str
    as_number: int | None
    node_ref: str
    cluster_type: str
    check_duplicates: bool
    default_pools: bool
    pool4: PoolSetting
    pool6: PoolSetting
    allow_overlap: bool = False
    """Whether a default pool may overlap a network that is in use."""
    nodename_file: Path = field(default=paths.NODENAME)
    shutdown_file: Path = field(default=paths.LIB / "shutdownTS")
    log_dir: Path | None = None
    """The directory of the agents' output; None: it goes where this process's goes."""
    wait_for_datastore: bool = True
    poll_seconds: float = POLL_SECONDS
    """Seconds between two looks at the addresses, besides those after a kernel event."""
    felix: bool = True
    manage_cni: bool = True
    cni_account: str = CNI_ACCOUNT
    ipv6_support: bool = True
    """Whether felix supports IPv6; without it there is no default pool of that family."""

    def kubernetes_name(self, name: str) -> str:
        """This node's name in Kubernetes."""
        return self.node_ref or name


def node_name(environ: Mapping[str, str], stored: str, host: str) -> str:
    """The node's name: NODENAME, else the stored one, else HOSTNAME, else the host's name.

    `stored` is the text of the nodename file or empty, `host` what the kernel calls itself.
    Raises `InvalidValue` that names the source.
    """
    for source, text in (
        ("NODENAME", environ.get("NODENAME", "").strip()),
        ("the nodename file", stored.strip()),
        ("HOSTNAME", environ.get("HOSTNAME", "").strip().lower()),
        ("the host name", host.strip().lower()),
    ):
        if text:
            if not _NAME.fullmatch(text) or len(text) > 253:
                raise InvalidValue(
                    source,
                    text,
                    "a node name is lower-case letters, digits, '-' and '.',"
                    " beginning and ending with a letter or digit, at most 253 characters",
                )
            return text
    raise InvalidValue("NODENAME", "", "the node has no name: set NODENAME or the host name")


def settings(environ: Mapping[str, str]) -> Settings:
    """The settings in `environ`; raises `InvalidValue` naming the variable."""
    backend = environ.get("CALICO_NETWORKING_BACKEND", "") or "bird"
    if environ.get("CALICO_NETWORKING", "").strip().lower() == "false":
        backend = "none"
    if backend not in BACKENDS:
        raise InvalidValue("CALICO_NETWORKING_BACKEND", backend, f"allowed: {', '.join(BACKENDS)}")
    _check_router_id(environ.get("CALICO_ROUTER_ID", ""))
    no_pools = flag(environ, "NO_DEFAULT_POOLS", False)
    for name in ("CALICO_IPV4POOL_CIDR", "CALICO_IPV6POOL_CIDR"):
        if no_pools and environ.get(name):
            raise InvalidValue(name, environ[name], "must not be set with NO_DEFAULT_POOLS=true")
    return Settings(
        ipv4=_address(environ, "IP", 4),
        ipv6=_address(environ, "IP6", 6),
        backend=backend,
        as_number=_as_number(environ),
        node_ref=environ.get("CALICO_K8S_NODE_REF", ""),
        cluster_type=environ.get("CLUSTER_TYPE", ""),
        check_duplicates=not flag(environ, "DISABLE_NODE_IP_CHECK", False),
        default_pools=not no_pools,
        pool4=pool_setting(environ, 4),
        pool6=pool_setting(environ, 6),
        allow_overlap=flag(environ, ALLOW_OVERLAP, False),
        nodename_file=Path(environ.get("CALICO_NODENAME_FILE", "") or paths.NODENAME),
        shutdown_file=Path(
            environ.get("CALICO_SHUTDOWN_TIMESTAMP_FILE", "") or paths.LIB / "shutdownTS"
        ),
        log_dir=_log_dir(environ),
        wait_for_datastore=flag(environ, "WAIT_FOR_DATASTORE", True),
        poll_seconds=interval(environ, "AUTODETECT_POLL_INTERVAL", POLL_SECONDS),
        felix=not flag(environ, "CALICO_DISABLE_FELIX", False),
        manage_cni=flag(environ, "CALICO_MANAGE_CNI", True),
        cni_account=environ.get("CALICO_CNI_SERVICE_ACCOUNT", "").strip() or CNI_ACCOUNT,
        ipv6_support=flag(environ, "FELIX_IPV6SUPPORT", True),
    )


def _log_dir(environ: Mapping[str, str]) -> Path | None:
    """The directory of log files, None unless they are asked for by a directory or by a flag."""
    folder = environ.get("CALICO_LOG_DIR", "")
    if flag(environ, "CALICO_DISABLE_FILE_LOGGING", not folder):
        return None
    return Path(folder or paths.LOG)


def _check_router_id(text: str) -> None:
    """Refuse a wrong value before the speaker starts, which reads the variable itself."""
    if text in ("", "hash"):
        return
    try:
        IPv4Address(text)
    except ValueError:
        rule = "an IPv4 address, or hash (made of the node's name)"
        raise InvalidValue("CALICO_ROUTER_ID", text, rule) from None


def _as_number(environ: Mapping[str, str]) -> int | None:
    text = environ.get("AS", "").strip()
    if not text:
        return None
    try:
        return as_number(text)
    except ValueError as error:
        raise InvalidValue("AS", text, str(error)) from None


def _address(environ: Mapping[str, str], name: str, version: int) -> AddressSetting:
    named = environ.get(f"{name}_AUTODETECTION_METHOD", "").strip()
    if named:
        _check_method(f"{name}_AUTODETECTION_METHOD", named)
    method, asked = named or FIRST_FOUND, bool(named)
    text = environ.get(name, "").strip()
    if text in (AUTODETECT, NONE):
        return AddressSetting(text, method, asked=asked)
    if not text:
        return AddressSetting(UNSET if version == 4 else NONE, method, asked=asked)
    try:
        address = ip_interface(text)
    except ValueError:
        address = None
    if address is None or address.version != version:
        raise InvalidValue(
            name, text, f"allowed: autodetect, none, an IPv{version} address, or one with a mask"
        )
    return AddressSetting("explicit", method, address, "/" in text, asked)


def _check_method(variable: str, text: str) -> None:
    method, equals, argument = text.partition("=")
    if f"{method}{equals}" not in METHODS or (equals and not argument.strip()):
        raise InvalidValue(variable, text, f"allowed: {METHODS_TOLD}")
