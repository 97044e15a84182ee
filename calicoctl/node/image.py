"""The command line that runs a node as a container, and what must be done before. Pure.

Names, volumes and environment are those of docs/reference/data-model.md#calicoctl-node-run, so that
scripts and service units made for Calico's `node run --dryrun` go on working. A password never
stands in the command line: it is handed over by name (`-e ETCD_PASSWORD`) and read by the engine
from its own environment.
Tested in `tests/calicoctl/test_node_run.py`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path

from libcalico.apiconfig import ETCD, DatastoreConfig
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model.base.numorstring import as_number

CONTAINER = "calico-node"
BACKENDS = ("bird", "vxlan", "none")
METHODS = ("first-found", "can-reach=", "interface=", "skip-interface=")
CERTIFICATES = {
    "ca_file": ("ETCD_CA_CERT_FILE", "/etc/calico/certs/ca_cert.crt"),
    "key_file": ("ETCD_KEY_FILE", "/etc/calico/certs/key.pem"),
    "cert_file": ("ETCD_CERT_FILE", "/etc/calico/certs/cert.crt"),
    "read_ca_file": ("ETCD_READ_CA_CERT_FILE", "/etc/calico/certs/read_ca_cert.crt"),
    "read_key_file": ("ETCD_READ_KEY_FILE", "/etc/calico/certs/read_key.pem"),
    "read_cert_file": ("ETCD_READ_CERT_FILE", "/etc/calico/certs/read_cert.crt"),
}
VOLUMES = ("/var/run/calico", "/var/lib/calico", "/lib/modules", "/run")
MODULES = ("xt_set", "ip6_tables")
SYSCTLS = {
    "net/ipv4/ip_forward": "1",
    "net/ipv6/conf/all/forwarding": "1",
    "net/netfilter/nf_conntrack_max": "1000000",
}
"""What is set before a node runs in a container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The flags of `node run`, as given."""

    name: str
    ip: str = ""
    ip6: str = ""
    as_number: str = ""
    ip_method: str = ""
    ip6_method: str = ""
    log_dir: str = "/var/log/calico"
    image: str = ""
    backend: str = "bird"
    init_system: bool = False
    no_default_ippools: bool = False
    felix_config: str = ""

    def check(self) -> None:
        """Raise `InvalidValue` naming the flag that is wrong."""
        if not self.name:
            raise InvalidValue("--name", self.name, "a node needs a name")
        _address("--ip", self.ip, IPv4Interface, "an IPv4 address")
        _address("--ip6", self.ip6, IPv6Interface, "an IPv6 address")
        if self.backend not in BACKENDS:
            raise InvalidValue("--backend", self.backend, f"allowed: {', '.join(BACKENDS)}")
        if self.as_number:
            try:
                as_number(self.as_number)
            except ValueError:
                rule = "an AS number: 0 to 4294967295, or dotted such as 1.10"
                raise InvalidValue("--as", self.as_number, rule) from None
        _method("--ip-autodetection-method", self.ip_method)
        _method("--ip6-autodetection-method", self.ip6_method)


def _address(
    flag: str, text: str, kind: type[IPv4Interface] | type[IPv6Interface], what: str
) -> None:
    if text in ("", "autodetect", "none"):
        return
    try:
        kind(text)
    except ValueError:
        rule = f"{what}, with or without its mask, autodetect or none"
        raise InvalidValue(flag, text, rule) from None


def _method(flag: str, text: str) -> None:
    if text in ("", "first-found"):
        return
    name, equals, value = text.partition("=")
    if f"{name}{equals}" not in METHODS or not value.strip():
        rule = "allowed: first-found, can-reach=HOST, interface=REGEX,..., skip-interface=REGEX,..."
        raise InvalidValue(flag, text, rule)


def environment(settings: RunSettings) -> dict[str, str]:
    """What the node is told, without the datastore."""
    variables = {
        "NODENAME": settings.name,
        "CALICO_NETWORKING_BACKEND": settings.backend,
        "CALICO_MANAGE_CNI": "false",
        "NO_DEFAULT_POOLS": "true" if settings.no_default_ippools else "",
        "IP": settings.ip,
        "IP6": settings.ip6,
        "AS": settings.as_number,
        "IP_AUTODETECTION_METHOD": settings.ip_method,
        "IP6_AUTODETECTION_METHOD": settings.ip6_method,
    }
    return {name: text for name, text in variables.items() if text}


def datastore_environment(config: DatastoreConfig) -> dict[str, str]:
    """The datastore's variables, certificate files by their path on this machine.

    Raises `MuslinError` for a datastore that is not etcd, and for keys that lie in the
    configuration file itself: neither an environment nor a command line is a place for them.
    """
    if config.datastore_type != ETCD:
        raise MuslinError(
            f"node run needs the datastore etcdv3, not {config.datastore_type}: set"
            " ETCD_ENDPOINTS, or name a configuration file with --config"
        )
    config.check()
    if config.key or config.cert or config.ca:
        raise MuslinError(
            "node run cannot hand over keys and certificates that stand in the configuration file"
            " (etcdKey, etcdCert, etcdCACert): put them into files and name those"
        )
    variables = {
        "DATASTORE_TYPE": ETCD,
        "ETCD_ENDPOINTS": config.etcd_endpoints,
        "ETCD_READ_ENDPOINTS": config.read_endpoints,
        "ETCD_DISCOVERY_SRV": config.discovery_srv,
        "ETCD_USERNAME": config.username,
        "ETCD_PASSWORD": config.password,
        **{name: getattr(config, field) for field, (name, _) in CERTIFICATES.items()},
    }
    return {name: text for name, text in variables.items() if text}


def command(engine: str, image: str, settings: RunSettings, store: Mapping[str, str]) -> list[str]:
    """The container engine's command line; `store` is `datastore_environment`'s."""
    words = [engine, "run", "--net=host", "--privileged", f"--name={CONTAINER}"]
    words += ["--rm"] if settings.init_system else ["-d", "--restart=always"]
    volumes = [(settings.log_dir, "/var/log/calico"), *((path, path) for path in VOLUMES)]
    inside = dict(CERTIFICATES.values())
    variables = environment(settings)
    for name, text in store.items():
        variables[name] = inside.get(name, text)
        if name in inside:
            volumes.append((str(Path(text).absolute()), inside[name]))
    if settings.felix_config:
        volumes.append((str(Path(settings.felix_config).absolute()), "/etc/calico/felix.cfg"))
    for name, text in variables.items():
        words += ["-e", name if name == "ETCD_PASSWORD" else f"{name}={text}"]
    for outside, path in volumes:
        words += ["-v", f"{outside}:{path}"]
    return [*words, image]


def shown(words: list[str]) -> str:
    """A command line that can be pasted into a shell."""
    return " ".join(shlex.quote(word) for word in words)
