"""The network's configuration: our own, or a template's, under the name that fits what it is.

A list in a `.conf` or a single plugin in a `.conflist` makes a runtime refuse its whole
directory (INS-07), so the suffix follows the content. `10-calico.conf` of the first generation
sorts before `10-calico.conflist` and would hide it: what the new file replaces goes once the
new one is there (INS-06).

The version (INS-11): a chain works at a version that each of its plugins speaks. Ours is 1.0.0,
and where every plugin says 1.1.0 too, `cniVersions` offers that to runtimes that know the key;
older ones read 1.0.0. A template's version is lowered where a plugin does not speak it.
Tested in tests/cni_conformance/test_install_beside.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from cni.client import NetworkError, networks, parse, parse_single
from cni.install import credentials, template
from cni.install.credentials import Credentials
from cni.install.files import Folder, opened
from cni.install.list_versions import NetworkList, find_plugin, settle_version, spoken_versions
from cni.install.settings import LIST, SINGLE, VARIABLES, Settings
from libcalico.errors import NO_DOCUMENT, InvalidValue

log = logging.getLogger(__name__)

CONFLIST_NAME = LIST


CHAINED: Mapping[str, Mapping[str, object]] = {
    "portmap": {"type": "portmap", "snat": True, "capabilities": {"portMappings": True}},
    "bandwidth": {"type": "bandwidth", "capabilities": {"bandwidth": True}},
}
"""What follows our plugin in our own list, where the node has it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be written: decided, and every input read, before the first byte is."""

    text: str = field(repr=False)
    is_list: bool
    ours: bool
    """Not from a template: plugins of the node may be chained, a newer version offered."""
    credentials: Credentials


def default_conflist(
    mtu: int = 0, log_level: str = "info", chained: Sequence[str] = ()
) -> NetworkList:
    """Return the network list that we write: version 1.0.0, as every chained plugin speaks it.

    `mtu` in bytes; 0 leaves it to the node. It names no credentials: the daemon has them. The
    policy is Kubernetes', as in Calico's own list: no profile of the network's name is asked for.
    """
    plugin: dict[str, object] = {
        "type": "calico",
        "log_level": log_level,
        "ipam": {"type": "calico-ipam"},
        "policy": {"type": "k8s"},
        "capabilities": {"io.kubernetes.cri.pod-annotations": True},
    }
    if mtu:
        plugin["mtu"] = mtu
    after = [dict(CHAINED[name]) for name in chained]
    return {"name": "k8s-pod-network", "cniVersion": "1.0.0", "plugins": [plugin, *after]}


def encoded(document: NetworkList) -> bytes:
    """A configuration as it is written."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def plan(settings: Settings, environ: Mapping[str, str]) -> Plan:
    """Decide what to write. Raises TemplateError, NoCredential, NetworkError, InvalidValue."""
    text, source = _template(settings)
    if not text.strip():
        mtu = int(settings.values["CNI_MTU"]) if environ.get("CNI_MTU") else 0
        conflist = default_conflist(mtu, settings.values["LOG_LEVEL"])
        return Plan(encoded(conflist).decode(), True, True, Credentials())
    gathered = credentials.gather(template.names(text), settings)
    values: dict[str, str | Callable[[], str]] = {
        one.placeholder: settings.values[one.name] for one in VARIABLES if one.placeholder
    }
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        values[name] = credentials.value_of(settings, name)
    never = dict.fromkeys(credentials.ASKING, "")
    rendered = template.render(text, {**values, **never, **gathered.values}, source)
    return Plan(rendered, _is_list(rendered, source), False, gathered)


def write(settings: Settings, chosen: Plan, chained: Sequence[str] = ()) -> Path:
    """Write credentials, then the configuration, then remove what it replaces.

    `chained` are plugins that our own list may hold, if the node has them. Returns the
    configuration's path. Raises NetworkError, InvalidValue, OSError, Busy.
    """
    name = file_name(settings, chosen.is_list)
    content = _settled(settings, chosen, chained)
    old = {settings.values["CNI_OLD_CONF_NAME"], SINGLE, LIST} - {name, ""}
    with opened(settings.net_dir) as folder:
        _write_credentials(folder, chosen.credentials)
        if folder.replace(name, content, 0o600):
            log.info("wrote %s", settings.net_dir / name)
        folder.sync()
        for replaced in sorted(old):
            if folder.remove(replaced):
                log.info("removed %s: %s is there instead", replaced, name)
    _warn(settings, name, chosen, content)
    return settings.net_dir / name


def remove(settings: Settings) -> None:
    """Remove the configuration, then the credentials (INS-12). Raises OSError, Busy."""
    if not settings.net_dir.is_dir():
        return
    with opened(settings.net_dir) as folder:
        for name in (settings.values["CNI_CONF_NAME"], SINGLE, LIST):
            if name and folder.remove(name):
                log.info("removed %s", settings.net_dir / name)
        folder.remove(credentials.KUBECONFIG)
        if (settings.net_dir / credentials.TLS_FOLDER).is_dir():
            with folder.inner(credentials.TLS_FOLDER) as inner:
                for name in credentials.TLS.values():
                    inner.remove(name)
            folder.remove_inner(credentials.TLS_FOLDER)


def file_name(settings: Settings, is_list: bool) -> str:
    """The file's name. Raises InvalidValue when CNI_CONF_NAME does not fit the content."""
    name = settings.values["CNI_CONF_NAME"]
    if not name:
        return LIST if is_list else SINGLE
    if name.endswith(".conflist") != is_list:
        what = "a list of plugins: .conflist" if is_list else "a single plugin: .conf or .json"
        raise InvalidValue("CNI_CONF_NAME", name, f"the configuration is {what}")
    return name


def _template(settings: Settings) -> tuple[str, str]:
    if path := settings.values["CNI_NETWORK_CONFIG_FILE"]:
        try:
            return Path(path).read_text(), path
        except (OSError, UnicodeDecodeError) as problem:
            raise InvalidValue(
                "CNI_NETWORK_CONFIG_FILE", path, f"cannot be read: {problem}"
            ) from None
    return settings.values["CNI_NETWORK_CONFIG"], "CNI_NETWORK_CONFIG"


def _is_list(text: str, source: str) -> bool:
    """Whether it is a list; raises NetworkError when it is no configuration at all."""
    raw = text.encode()
    try:
        tree = msgspec.json.decode(raw)
    except NO_DOCUMENT as problem:
        raise NetworkError(f"{source}, filled in, is not JSON: {problem}") from None
    if isinstance(tree, dict) and "plugins" in tree:
        parse(raw, source)
        return True
    if not parse_single(raw, source).name:
        raise NetworkError(f"{source}: no name")
    return False


def _settled(settings: Settings, chosen: Plan, chained: Sequence[str]) -> bytes:
    if not chosen.is_list:
        return chosen.text.encode()
    document = msgspec.json.decode(chosen.text)
    if chosen.ours:
        there = [name for name in chained if find_plugin(settings, name)]
        document["plugins"] += [dict(CHAINED[name]) for name in there]
    types = {plugin["type"] for plugin in document["plugins"]}
    settled = settle_version(document, spoken_versions(settings, types), offer_newest=chosen.ours)
    return encoded(settled) if chosen.ours or settled != document else chosen.text.encode()


def _write_credentials(folder: Folder, gathered: Credentials) -> None:
    tls = {
        name.partition("/")[2]: content for name, content in gathered.files.items() if "/" in name
    }
    if any(tls.values()) or (tls and folder.exists(credentials.TLS_FOLDER)):
        with folder.inner(credentials.TLS_FOLDER) as inner:
            for name, content in tls.items():
                if content is None:
                    inner.remove(name)
                else:
                    inner.replace(name, content, 0o600)
    for name, content in gathered.files.items():
        if content is not None and "/" not in name:
            folder.replace(name, content, gathered.mode)


def _warn(settings: Settings, name: str, chosen: Plan, content: bytes) -> None:
    places = [str(settings.host_net_dir / file) for file in chosen.credentials.written]
    if "SERVICEACCOUNT_TOKEN" in chosen.credentials.values:
        places.append(str(settings.host_net_dir / name))
    if places:
        log.warning(
            "credentials lie on this host, because the template asks for them: %s. The plugin"
            " needs none: remove the placeholders to keep them off the disk",
            ", ".join(places),
        )
    network = msgspec.json.decode(content)["name"]
    for path in networks.files(settings.net_dir, (".conf", ".conflist", ".json")):
        if path.name == name:
            continue
        if path.name < name:
            log.warning("%s sorts before %s: runtimes that take the first use that", path, name)
        try:
            other = msgspec.json.decode(path.read_bytes())
        except (*NO_DOCUMENT, OSError):
            log.warning("%s cannot be read: some runtimes then refuse the whole directory", path)
            continue
        if isinstance(other, dict) and other.get("name") == network:
            log.warning("%s holds a network of the same name, %s", path, network)
