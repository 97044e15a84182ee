"""Where the datastore is and how to log in: the environment, or `calicoctl.cfg`.

Names and precedence are Calico's (docs/reference/data-model.md#calicoctls-configuration,
#environment-of-a-node). `calicoctl` calls `load`: a configuration file that is there is its only
source; the default file may be missing, a file named by hand may not. What runs on a node calls
`of_node`: the environment is the only source, and the file counts where the environment names no
setting at all. The two are never mixed. A file of the first generation (`apiVersion: v1`, `kind:
calicoApiConfig`) is read as well. Secrets never appear in `repr`; one that came by the environment
is worth a notice, because every child of the process and every tool that shows environments has it
too.
Tested in tests/libcalico/test_apiconfig.py.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from libcalico import parsing
from libcalico.errors import InvalidValue, MuslinError
from libcalico.process import paths

ETCD, KUBERNETES = "etcdv3", "kubernetes"
FLAGS = ("k8s_insecure", "k8s_disable_node_poll", "use_pod_cidr")
FILES = (
    *("key_file", "cert_file", "ca_file"),
    *("read_key_file", "read_cert_file", "read_ca_file"),
    *("kubeconfig", "k8s_key_file", "k8s_cert_file", "k8s_ca_file"),
)
SECRETS = ("password", "key", "k8s_token", "kubeconfig_inline")


def _option(spec: str, env: str, *, secret: bool = False) -> Any:
    return field(default="", repr=not secret, metadata={"spec": spec, "env": env})


@dataclass(frozen=True, slots=True)
class DatastoreConfig:
    """How to reach the datastore. `endpoints` are URLs of one cluster's members."""

    datastore_type: str = _option("datastoreType", "DATASTORE_TYPE")
    etcd_endpoints: str = _option("etcdEndpoints", "ETCD_ENDPOINTS")
    discovery_srv: str = _option("etcdDiscoverySrv", "ETCD_DISCOVERY_SRV")
    username: str = _option("etcdUsername", "ETCD_USERNAME")
    password: str = _option("etcdPassword", "ETCD_PASSWORD", secret=True)
    key_file: str = _option("etcdKeyFile", "ETCD_KEY_FILE")
    cert_file: str = _option("etcdCertFile", "ETCD_CERT_FILE")
    ca_file: str = _option("etcdCACertFile", "ETCD_CA_CERT_FILE")
    read_endpoints: str = _option("etcdReadEndpoints", "ETCD_READ_ENDPOINTS")
    read_key_file: str = _option("etcdReadKeyFile", "ETCD_READ_KEY_FILE")
    read_cert_file: str = _option("etcdReadCertFile", "ETCD_READ_CERT_FILE")
    read_ca_file: str = _option("etcdReadCACertFile", "ETCD_READ_CA_CERT_FILE")
    key: str = _option("etcdKey", "", secret=True)
    cert: str = _option("etcdCert", "", secret=True)
    ca: str = _option("etcdCACert", "", secret=True)
    kubeconfig: str = _option("kubeconfig", "KUBECONFIG")
    k8s_api_endpoint: str = _option("k8sAPIEndpoint", "K8S_API_ENDPOINT")
    k8s_key_file: str = _option("k8sKeyFile", "K8S_KEY_FILE")
    k8s_cert_file: str = _option("k8sCertFile", "K8S_CERT_FILE")
    k8s_ca_file: str = _option("k8sCAFile", "K8S_CA_FILE")
    k8s_token: str = _option("k8sAPIToken", "", secret=True)
    k8s_insecure: str = _option("k8sInsecureSkipTLSVerify", "K8S_INSECURE_SKIP_TLS_VERIFY")
    k8s_disable_node_poll: str = _option("k8sDisableNodePoll", "K8S_DISABLE_NODE_POLL")
    use_pod_cidr: str = _option("usePodCIDR", "USE_POD_CIDR")
    k8s_client_qps: str = _option("k8sClientQPS", "K8S_CLIENT_QPS")
    k8s_client_burst: str = _option("k8sClientBurst", "K8S_CLIENT_BURST")
    k8s_context: str = _option("k8sCurrentContext", "K8S_CURRENT_CONTEXT")
    kubeconfig_inline: str = _option("kubeconfigInline", "", secret=True)
    api_group: str = _option("calicoAPIGroup", "CALICO_API_GROUP")
    timeout: float = 5.0
    """The deadline of every call, in seconds."""
    keepalive: float = 6.0
    """Seconds of silence after which an etcd endpoint is asked whether it lives. One that is asked
    more often than every 5 s ends the connection (`--grpc-keepalive-min-time` of etcd)."""
    keepalive_timeout: float = 3.0
    """Seconds within which it must say so; else the connection is given up: 10 s after the last
    sign of life at most every status says that the datastore is away."""
    idle: float = 30.0
    """Seconds without a call after which the connection for single calls is given up: nothing pings
    the endpoint there."""
    proxied: bool = field(default=False, repr=False)
    """The endpoints are `etcd grpc-proxy`, which ends connections that ping more often than every
    5 minutes (gRPC's default for servers): it is asked by reads whether it lives."""
    by_environment: bool = field(default=False, repr=False, compare=False)
    """Errors name the variable, not the key of a file."""
    notices: tuple[str, ...] = field(default=(), repr=False)
    """What the operator should know about where these settings came from."""

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The etcd endpoints, one URL each."""
        return _listed(self.etcd_endpoints)

    @property
    def proxies(self) -> tuple[str, ...]:
        """The endpoints of `etcd grpc-proxy` that long reads go through, one URL each."""
        return _listed(self.read_endpoints)

    def through(self, proxy: str) -> DatastoreConfig:
        """The configuration of reads through one proxy, with the certificates for reads if any.

        It has no login (reading.py).
        """
        own = bool(self.read_cert_file)
        return replace(
            self,
            etcd_endpoints=proxy,
            read_endpoints="",
            username="",
            password="",
            ca_file=self.read_ca_file or self.ca_file,
            ca="" if self.read_ca_file else self.ca,
            cert_file=self.read_cert_file or self.cert_file,
            cert="" if own else self.cert,
            key_file=self.read_key_file or self.key_file,
            key="" if own else self.key,
            proxied=True,
        )

    def name(self, attribute: str) -> str:
        """The name of a setting where these came from: a variable, or a key of the file."""
        known = {one.name: one.metadata for one in fields(self) if one.metadata}[attribute]
        return str((self.by_environment and known["env"]) or known["spec"])

    def check(self) -> None:
        """Raise InvalidValue for settings that contradict each other
        (docs/reference/data-model.md#connection-to-etcd)."""
        if self.datastore_type not in (ETCD, KUBERNETES):
            raise InvalidValue(
                self.name("datastore_type"), self.datastore_type, f"must be {ETCD} or {KUBERNETES}"
            )
        for attribute in FLAGS:
            if text := getattr(self, attribute):
                parsing.flag(self.name(attribute), text)
        for attribute in FILES:
            if "\0" in getattr(self, attribute):
                raise InvalidValue(
                    self.name(attribute), getattr(self, attribute), "must be a file's path"
                )
        if self.datastore_type == ETCD:
            self._check_etcd()

    def _check_etcd(self) -> None:
        if self.etcd_endpoints and self.discovery_srv:
            rule = f"not together with {self.name('etcd_endpoints')}"
            raise InvalidValue(self.name("discovery_srv"), self.discovery_srv, rule)
        where = self.name("etcd_endpoints")
        if not self.endpoints and not self.discovery_srv:
            raise InvalidValue(where, self.etcd_endpoints, "must name at least one etcd endpoint")
        for endpoint in self.endpoints:
            parsing.url(where, endpoint, parsing.ETCD_PORT)
        for endpoint in self.proxies:
            parsing.url(self.name("read_endpoints"), endpoint, parsing.ETCD_PORT)
        inline = any((self.key, self.cert, self.ca))
        if inline and any((self.key_file, self.cert_file, self.ca_file)):
            rule = "files and inline PEM must not be mixed"
            raise InvalidValue(self.name("key_file"), self.key_file, rule)
        rule = "key and certificate go together"
        if bool(self.key_file) != bool(self.cert_file) or bool(self.key) != bool(self.cert):
            raise InvalidValue(self.name("key_file"), self.key_file, rule)
        if bool(self.read_key_file) != bool(self.read_cert_file):
            raise InvalidValue(self.name("read_key_file"), self.read_key_file, rule)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _finish(
    values: dict[str, str], notices: tuple[str, ...], *, by_environment: bool = False
) -> DatastoreConfig:
    if not values.get("datastore_type"):
        values["datastore_type"] = ETCD if values.get("etcd_endpoints") else KUBERNETES
    return DatastoreConfig(
        **values,  # type: ignore[arg-type]
        notices=notices,
        by_environment=by_environment,
    )


def from_environment(environ: Mapping[str, str]) -> DatastoreConfig:
    """The configuration that the environment holds; `CALICO_`-prefixed names count as well."""
    values: dict[str, str] = {}
    notices: tuple[str, ...] = ()
    for one in fields(DatastoreConfig):
        name = one.metadata.get("env")
        if name:
            text = environ.get(f"CALICO_{name}") or environ.get(name)
            if text:
                values[one.name] = text
                if one.name in SECRETS:
                    notices += (_exposed(name),)
    return _finish(values, notices, by_environment=True)


def _exposed(name: str) -> str:
    return (
        f"{name} is a secret in an environment variable, which other programs may see:"
        " put it into a file that only root can read (etcdPassword in calicoctl.cfg), or use"
        " a client certificate"
    )


def from_file(path: Path) -> DatastoreConfig:
    """The configuration in a YAML or JSON file of kind CalicoAPIConfig.

    Raises MuslinError when it cannot be read, InvalidValue for an unknown or wrong key.
    """
    try:
        text = path.read_text()
    except (OSError, ValueError) as problem:
        what = getattr(problem, "strerror", None) or problem
        raise MuslinError(f"Error reading config file: {path}: {what}") from problem
    from libcalico import yamltext  # not for who is configured by the environment

    subject = str(path)
    documents = yamltext.load(text, subject)
    if len(documents) > 1:
        raise InvalidValue("kind", "...", "the file must hold one CalicoAPIConfig", subject)
    tree = documents[0].value if documents else None
    notices: tuple[str, ...] = ()
    if isinstance(tree, dict) and tree.get("apiVersion") == "v1":
        from libcalico.legacy.apiconfig import as_v3

        tree, notice = as_v3(tree)
        notices = (notice,) if notice else ()
    if not isinstance(tree, dict):
        raise InvalidValue("kind", None, "the file must hold a CalicoAPIConfig", subject)
    for name, required in (("apiVersion", "projectcalico.org/v3"), ("kind", "CalicoAPIConfig")):
        if tree.get(name) != required:
            raise InvalidValue(name, tree.get(name), f"must be {required}", subject)
    for name in tree:
        if name not in ("apiVersion", "kind", "metadata", "spec"):
            raise InvalidValue(str(name), tree[name], "unknown key", subject)
    known = {one.metadata["spec"]: one.name for one in fields(DatastoreConfig) if one.metadata}
    values: dict[str, str] = {}
    spec = tree.get("spec") or {}
    if not isinstance(spec, dict):
        raise InvalidValue("spec", "...", "must be a map of settings", subject)
    for name, value in spec.items():
        if name not in known:
            raise InvalidValue(f"spec.{name}", "...", "unknown key", subject)
        if isinstance(value, bool):
            value = "true" if value else "false"
        elif value is None:
            continue
        elif not isinstance(value, (str, int, float)):
            raise InvalidValue(f"spec.{name}", "...", "must be text", subject)
        values[known[name]] = str(value)
    if any(values.get(name) for name in SECRETS) and stat.S_IMODE(path.stat().st_mode) & 0o077:
        notices += (f"{path} holds a secret and others than its owner can read it: chmod 600",)
    return _finish(values, notices)


def of_node(environ: Mapping[str, str]) -> DatastoreConfig:
    """The configuration of the programs of a node, the same for all of them.

    The environment is the only source where it sets any of its variables; else the default file
    counts, if there is one. Raises MuslinError or InvalidValue for a file that cannot be used.
    """
    names = (one.metadata["env"] for one in fields(DatastoreConfig) if one.metadata.get("env"))
    if any(environ.get(f"CALICO_{name}") or environ.get(name) for name in names):
        return from_environment(environ)
    return load(None, environ)


def load(path: str | Path | None, environ: Mapping[str, str]) -> DatastoreConfig:
    """The configuration in the file if it exists, else in the environment.

    `path` None means the default file; a file named by hand must exist. Raises MuslinError or
    InvalidValue.
    """
    chosen = Path(path) if path is not None else paths.CALICOCTL_CONFIG
    if not chosen.exists() and chosen == paths.CALICOCTL_CONFIG:
        return from_environment(environ)
    config = from_file(chosen)
    if path is not None:  # who names a file knows that it counts
        return config
    return replace(config, notices=(*config.notices, *_passed_over(chosen, config, environ)))


_PLACES = ("datastore_type", "etcd_endpoints", "discovery_srv")
"""The settings that say which datastore is meant."""


def _passed_over(
    file: Path, config: DatastoreConfig, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """The notice that variables which name another datastore do not count beside the file."""
    names = {one.name: str(one.metadata["env"]) for one in fields(config) if one.name in _PLACES}
    found = [
        variable
        for attribute, name in names.items()
        for variable in (f"CALICO_{name}", name)
        if environ.get(variable, "") not in ("", getattr(config, attribute))
    ]
    if not found:
        return ()
    return (f"{file} exists, so the environment is not asked: ignored are {', '.join(found)}",)
