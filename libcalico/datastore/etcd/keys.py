"""How keys of the data model are spelled in etcd, in both directions: the only place.

Layout: docs/reference/data-model.md#resource-keys (resources), 1.9 (IPAM), 1.10 (status). Names are
written verbatim; when reading, `%2f` is `/` and `%25` is `%`. Tested with the keys of a real Calico
in tests/libcalico/test_etcd_keys.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_network

from libcalico.datastore.interface import Selection
from libcalico.errors import UnsupportedKind
from libcalico.model.keys import (
    NO_REGION,
    AffinityKey,
    BlockKey,
    FelixStatusKey,
    HandleKey,
    HostEndpointStatusKey,
    HostKey,
    IPAMConfigKey,
    IPNetwork,
    Key,
    LifeSignKey,
    ResourceKey,
    StatusKey,
    WorkloadStatusKey,
)
from libcalico.model.kinds import KINDS, kind_named, kind_of_family, kind_of_plural

RESOURCES = "/calico/resources/v3/projectcalico.org/"
BLOCKS = "/calico/ipam/v2/assignment/"
HOSTS = "/calico/ipam/v2/host/"
VIRTUAL = "/calico/ipam/v2/virtual/"
HANDLES = "/calico/ipam/v2/handle/"
IPAM_CONFIG = "/calico/ipam/v2/config"
FELIX_V1 = "/calico/felix/v1/host/"
FELIX_V2 = "/calico/felix/v2/"
LAST = "last_reported_status"
LIFE_SIGN = "machine"
"""Ours, below felix's keys of the node: etcd's roles of older releases allow it there."""
KNOWN = 1024
"""Keys that are remembered as read: a node hears of its own blocks again and again."""


def path_of(key: Key) -> str:
    """The etcd key of an object. Raises UnsupportedKind."""
    match key:
        case ResourceKey(kind, name, namespace):
            row = KINDS.get(kind) or kind_named(kind)
            middle = f"{namespace}/" if row.namespaced else ""
            return f"{RESOURCES}{row.plural}/{middle}{name}"
        case BlockKey(cidr):
            return f"{BLOCKS}{_block(cidr)}"
        case AffinityKey(host, cidr, kind):
            return f"{VIRTUAL if kind == 'virtual' else HOSTS}{host}/{_block(cidr)}"
        case HandleKey(handle_id):
            return f"{HANDLES}{handle_id}"
        case IPAMConfigKey():
            return IPAM_CONFIG
        case HostKey(host):
            return f"{HOSTS}{host}"
        case FelixStatusKey(host, region, last):
            return f"{FELIX_V2}{region}/host/{host}/{LAST if last else 'status'}"
        case LifeSignKey(host):
            return f"{FELIX_V2}{NO_REGION}/host/{host}/{LIFE_SIGN}"
        case WorkloadStatusKey(host, orchestrator, workload, endpoint, region):
            return (
                f"{FELIX_V2}{region}/host/{host}/workload/{escape(orchestrator)}"
                f"/{escape(workload)}/endpoint/{escape(endpoint)}"
            )
        case HostEndpointStatusKey(host, endpoint):
            return f"{FELIX_V1}{host}/endpoint/{escape(endpoint)}"


@lru_cache(maxsize=KNOWN)
def key_of_path(path: str) -> Key | None:
    """The object that an etcd key names; None for keys that name none of ours."""
    if path.startswith(RESOURCES):
        return _resource(path.removeprefix(RESOURCES))
    if path.startswith(BLOCKS):
        cidr = _cidr(path.removeprefix(BLOCKS).split("/"))
        return BlockKey(cidr) if cidr else None
    for root, kind in ((HOSTS, "host"), (VIRTUAL, "virtual")):
        if path.startswith(root):
            host, *rest = path.removeprefix(root).split("/")
            cidr = _cidr(rest)
            return AffinityKey(unescape(host), cidr, kind) if host and cidr else None
    if path.startswith(HANDLES):
        handle = path.removeprefix(HANDLES)
        return HandleKey(handle) if handle else None
    if path.startswith((FELIX_V1, FELIX_V2)):
        return _status(path)
    return IPAMConfigKey() if path == IPAM_CONFIG else None


def range_of(selection: Selection) -> tuple[bytes, bytes]:
    """First key and end of the range that holds a selection; `selects` may narrow it further.

    Raises UnsupportedKind.
    """
    match selection.family:
        case "Block":
            return _prefix(BLOCKS)
        case "BlockAffinity" if selection.host:
            return _prefix(f"{HOSTS}{selection.host}/")
        case "BlockAffinity":
            # host/ and virtual/ in one range: nothing of Calico's layout sorts between.
            return HOSTS.encode(), _prefix(VIRTUAL)[1]
        case "Handle":
            return _prefix(HANDLES)
        case "FelixStatus" | "WorkloadStatus":
            # The region comes before the host, so `selects` has to tell them apart.
            return _prefix(FELIX_V2)
        case "HostEndpointStatus":
            return _prefix(f"{FELIX_V1}{selection.host}/" if selection.host else FELIX_V1)
        case "IPAMConfig":
            return IPAM_CONFIG.encode(), IPAM_CONFIG.encode() + b"\0"
    kind = kind_of_family(selection.family)
    if kind is None:
        raise UnsupportedKind(f"{selection.family!r} names nothing that can be listed")
    root = f"{RESOURCES}{kind.plural}/"
    if kind.namespaced:
        if not selection.namespace:
            return _prefix(root)
        root += f"{selection.namespace}/"
    if kind.name == "Node" and selection.host:
        key = (root + selection.host).encode()
        return key, key + b"\0"
    return _prefix(root + selection.name_prefix)


def scattered(selection: Selection) -> Callable[[bytes], bool] | None:
    """A filter of keys, for a selection whose keys lie far apart in its range; else None.

    Names of one node's endpoints lie between those of all nodes, across namespaces; the values of
    the others need not travel.
    """
    kind = kind_of_family(selection.family)
    if not selection.name_prefix or selection.namespace or kind is None or not kind.namespaced:
        return None
    prefix = selection.name_prefix

    def belongs(key: bytes) -> bool:
        name = key[key.rindex(b"/") + 1 :].decode(errors="replace")
        return (unescape(name) if "%" in name else name).startswith(prefix)

    return belongs


def row_names(selection: Selection) -> Callable[[bytes], str]:
    """A function from an etcd key in the range of a selection of resources to the row's name.

    Its result is empty for a key that names no such resource.
    """
    kind = kind_named(selection.family)
    cut = len(f"{RESOURCES}{kind.plural}/")
    slashes = 1 if kind.namespaced else 0
    prefix = selection.name_prefix

    def name(key: bytes) -> str:
        text = key[cut:].decode(errors="replace")
        plain = "%" not in text and text[:1] != "/" != text[-1:]
        if plain and not prefix and text.count("/") == slashes:
            return text
        parts = [unescape(part) for part in text.split("/")]
        if len(parts) != slashes + 1 or not all(parts) or not parts[-1].startswith(prefix):
            return ""
        return "/".join(parts)

    return name


def selects(selection: Selection, key: Key) -> bool:
    """Whether a key inside the range of a selection belongs to it."""
    if isinstance(key, ResourceKey):
        return not selection.name_prefix or key.name.startswith(selection.name_prefix)
    match key:
        case FelixStatusKey() | WorkloadStatusKey():
            family = "FelixStatus" if isinstance(key, FelixStatusKey) else "WorkloadStatus"
            return family == selection.family and selection.host in ("", key.host)
        case LifeSignKey():
            return False
    return True


def escape(part: str) -> str:
    """A part of a v1-style status key: `%` and `/` escaped, in this order
    (docs/reference/data-model.md#status-keys)."""
    return part.replace("%", "%25").replace("/", "%2f")


def unescape(part: str) -> str:
    """The reverse of `escape`."""
    return part.replace("%2f", "/").replace("%2F", "/").replace("%25", "%")


def _status(path: str) -> StatusKey | None:
    parts = path.removeprefix(FELIX_V1).split("/")
    if path.startswith(FELIX_V1):
        if len(parts) != 3 or parts[1] != "endpoint" or not all(parts):
            return None
        return HostEndpointStatusKey(parts[0], unescape(parts[2]))
    match path.removeprefix(FELIX_V2).split("/"):
        case [region, "host", host, ("status" | "last_reported_status") as word] if region and host:
            return FelixStatusKey(host, region, word == LAST)
        case [region, "host", host, word] if (region, word) == (NO_REGION, LIFE_SIGN) and host:
            return LifeSignKey(host)
        case [region, "host", host, "workload", orchestrator, workload, "endpoint", endpoint]:
            names = (host, unescape(orchestrator), unescape(workload), unescape(endpoint), region)
            return WorkloadStatusKey(*names) if all(names) else None
    return None


def _resource(rest: str) -> ResourceKey | None:
    plural, *names = rest.split("/")
    kind = kind_of_plural(plural)
    if kind is None or len(names) != (2 if kind.namespaced else 1) or not all(names):
        return None
    if "%" in rest:
        names = [unescape(part) for part in names]
    return ResourceKey(kind.name, names[-1], names[0] if kind.namespaced else "")


def _block(cidr: IPNetwork) -> str:
    return f"ipv{cidr.version}/block/{cidr.network_address}-{cidr.prefixlen}"


def _cidr(parts: list[str]) -> IPNetwork | None:
    if len(parts) != 3 or parts[0] not in ("ipv4", "ipv6") or parts[1] != "block":
        return None
    address, _, length = parts[2].rpartition("-")
    try:
        return ip_network(f"{address}/{length}", strict=False)
    except ValueError:
        return None


def _prefix(text: str) -> tuple[bytes, bytes]:
    raw = text.encode()
    return raw, raw[:-1] + bytes([raw[-1] + 1])
