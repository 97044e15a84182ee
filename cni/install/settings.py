"""The installer's variables: those of Calico's installer, with its names and defaults.

`VARIABLES` is the one table; docs/install-cni.md shows it, and a test holds the two together.
Directories: in a container the host's are mounted below `/host`; by hand they are the host's.
Tested in tests/cni/test_install_variables.py and tests/cni_conformance/test_install.py.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from libcalico import parsing
from libcalico.errors import InvalidValue, MuslinError
from libcalico.process import paths

HOST = Path("/host")
SECONDARY = "secondary-bin-dir"
SINGLE, LIST = "10-calico.conf", "10-calico.conflist"
YES, NO = ("1", "t", "true", "y", "yes", "on"), ("0", "f", "false", "n", "no", "off")


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable; `placeholder` is what a template calls its value, if it may."""

    name: str
    default: str
    meaning: str
    placeholder: str = ""


VARIABLES = (
    Variable("CNI_NET_DIR", str(paths.CNI_NET), "the host's configuration directory"),
    Variable("CNI_CONF_NAME", "", "the configuration's file name; default by what it holds"),
    Variable("CNI_OLD_CONF_NAME", "", "a file name to remove once the new one is there"),
    Variable("CNI_NETWORK_CONFIG", "", "the template's text"),
    Variable("CNI_NETWORK_CONFIG_FILE", "", "the template's file; wins"),
    Variable("SKIP_CNI_BINARIES", "", "executables to leave out, separated by commas"),
    Variable("UPDATE_CNI_BINARIES", "true", "`false` keeps executables that are there"),
    Variable("SLEEP", "true", "`false`: end when done, as an init container does"),
    Variable("LOG_LEVEL", "info", "", "LOG_LEVEL"),
    Variable("LOG_FILE_PATH", "/var/log/calico/cni/cni.log", "", "LOG_FILE_PATH"),
    Variable("LOG_FILE_MAX_SIZE", "100", "a number", "LOG_FILE_MAX_SIZE"),
    Variable("LOG_FILE_MAX_AGE", "30", "a number", "LOG_FILE_MAX_AGE"),
    Variable("LOG_FILE_MAX_COUNT", "10", "a number", "LOG_FILE_MAX_COUNT"),
    Variable("DATASTORE_TYPE", "kubernetes", "", "DATASTORE_TYPE"),
    Variable("CALICO_API_GROUP", "crd.projectcalico.org/v1", "", "CALICO_API_GROUP"),
    Variable("KUBERNETES_NODE_NAME", "the host's name", "", "KUBERNETES_NODE_NAME"),
    Variable("CNI_MTU", "1500", "a number", "CNI_MTU"),
    Variable("REQUIRE_MTU_FILE", "false", "true or false", "REQUIRE_MTU_FILE"),
    Variable("ETCD_ENDPOINTS", "", "", "ETCD_ENDPOINTS"),
    Variable("ETCD_DISCOVERY_SRV", "", "", "ETCD_DISCOVERY_SRV"),
    Variable("TLS_ASSETS_DIR", "/calico-secrets", "where etcd-key, etcd-cert and etcd-ca lie"),
    Variable("KUBERNETES_SERVICE_PROTOCOL", "https", "of the address in the kubeconfig"),
    Variable("KUBERNETES_SERVICE_HOST", "", "", "KUBERNETES_SERVICE_HOST"),
    Variable("KUBERNETES_SERVICE_PORT", "", "", "KUBERNETES_SERVICE_PORT"),
    Variable("SKIP_TLS_VERIFY", "false", "the kubeconfig does not verify the API server"),
    Variable("TEST_FILE_PERMISSION", "0600", "the kubeconfig's mode; more is refused"),
)
MOST = 2**31 - 1
NUMBERS = ("LOG_FILE_MAX_SIZE", "LOG_FILE_MAX_AGE", "LOG_FILE_MAX_COUNT", "CNI_MTU")


class NotMounted(MuslinError):
    """We run in a container, and a directory of the host is not mounted."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What to install, and where. `net_dir` is where we write, `host_net_dir` its own name."""

    values: Mapping[str, str]
    bin_dirs: tuple[Path, ...]
    net_dir: Path
    host_net_dir: Path
    mounted: bool = False
    """In a container, with the host's directories below /host."""
    others: Path | None = None
    account: Path = paths.SERVICE_ACCOUNT

    def flag(self, name: str) -> bool:
        """A variable that is true or false."""
        return _flag(name, self.values[name])

    @property
    def skip(self) -> frozenset[str]:
        """Executables to leave out."""
        return frozenset(self.values["SKIP_CNI_BINARIES"].replace(",", " ").split())


def settings_from(
    environ: Mapping[str, str],
    host: Path = HOST,
    *,
    bin_dirs: tuple[Path, ...] = (),
    net_dir: Path | None = None,
    parts: tuple[str, ...] = ("binaries", "configuration"),
    plugins: Path = paths.CNI_BIN,
    account: Path = paths.SERVICE_ACCOUNT,
) -> Settings:
    """Settings from the environment; directories that are given win over mounted ones.

    Raises InvalidValue naming the variable, NotMounted.
    """
    values = {one.name: environ.get(one.name) or one.default for one in VARIABLES}
    if not environ.get("KUBERNETES_NODE_NAME"):
        values["KUBERNETES_NODE_NAME"] = environ.get("NODENAME") or socket.gethostname().lower()
    for name, value in values.items():
        parsing.check_text(name, value)
    for name in NUMBERS:
        parsing.number(name, values[name], 0, MOST)
    for name in ("UPDATE_CNI_BINARIES", "SLEEP", "REQUIRE_MTU_FILE", "SKIP_TLS_VERIFY"):
        _flag(name, values[name])
    values["REQUIRE_MTU_FILE"] = "true" if _flag("", values["REQUIRE_MTU_FILE"]) else "false"
    for name in ("CNI_CONF_NAME", "CNI_OLD_CONF_NAME"):
        _check_name(name, values[name])
    if values["TEST_FILE_PERMISSION"].lstrip("0o") not in ("600", "400"):
        raise InvalidValue(
            "TEST_FILE_PERMISSION", values["TEST_FILE_PERMISSION"], "0600 or 0400: it is a secret"
        )
    named = Path(values["CNI_NET_DIR"])
    if not named.is_absolute():
        raise InvalidValue("CNI_NET_DIR", str(named), "must be an absolute path")
    mounted = tuple(path for path in (host / "opt/cni/bin", host / SECONDARY) if path.is_dir())
    net_mounted = host / "etc/cni/net.d"
    inside = bool(mounted) or net_mounted.is_dir()
    if inside and not mounted and not bin_dirs and "binaries" in parts:
        raise NotMounted(f"the host's /opt/cni/bin is not mounted at {host / 'opt/cni/bin'}")
    if inside and not net_mounted.is_dir() and net_dir is None and "configuration" in parts:
        raise NotMounted(f"the host's {named} is not mounted at {net_mounted}")
    return Settings(
        values,
        bin_dirs or mounted or (paths.CNI_BIN,),
        net_dir or (net_mounted if inside else named),
        named if net_dir is None or environ.get("CNI_NET_DIR") else net_dir,
        inside,
        # An image brings other plugins along in its own /opt/cni/bin.
        plugins if mounted else None,
        account,
    )


def _flag(name: str, value: str) -> bool:
    if value.lower() not in YES + NO:
        raise InvalidValue(name, value, "must be true or false")
    return value.lower() in YES


def _check_name(variable: str, name: str) -> None:
    if not name:
        return
    if "/" in name or name.startswith("."):
        raise InvalidValue(variable, name, "must be a plain file name")
    if not name.endswith((".conf", ".conflist", ".json")):
        raise InvalidValue(variable, name, "must end in .conflist, .conf or .json")
