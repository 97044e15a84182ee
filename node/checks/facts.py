"""What the checks look at: everything that was gathered about this machine, as plain data.

`None` (or an empty `why` beside it) means that a fact could not be found out; a check then says
so and passes no judgement. The edge that fills this in is `node/gather/`.
Tested in tests/node/test_checks.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import IPv4Address, IPv6Address

from libcalico.model.keys import IPNetwork
from node.identity.autodetect import Interface
from node.settings.environment import AddressWish

IPAddress = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """`release` as uname says it. `modules`: name to how it is there (`loaded`, `built in`,
    `can be loaded`, `answers`); `modules_known` tells whether a missing name means anything."""

    release: str = ""
    modules: Mapping[str, str] = field(default_factory=dict)
    modules_known: bool = False
    sysctls: Mapping[str, str] = field(default_factory=dict)
    native: bool = False
    """Rules are nftables' own here: neither iptables nor ipset is used, nor their modules."""
    iptables: Mapping[str, str] = field(default_factory=dict)
    """Program to the version it told, for those that are installed."""
    rules: Mapping[str, int] | None = None
    """Back end (`nft`, `legacy`) to the number of rules that it holds."""
    backend: str = ""
    chains: tuple[str, ...] = ()
    ipset: str | None = None
    """Empty when the kernel answered about its sets, else what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A directory that we write to, or would make: bytes and inodes in percent free."""

    path: str
    writable: bool
    free_bytes: int = 0
    free_percent: float = 100.0
    free_inodes_percent: float = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine around the kernel."""

    root: bool = True
    hostname: str = ""
    node_name: str = ""
    name_error: str = ""
    nodename_file: str = ""
    clock_synchronised: bool | None = None
    clock_error_seconds: float | None = None
    spaces: tuple[Space, ...] = ()
    unseen: tuple[str, ...] = ()
    """Directories that this container does not have: what they lack is not looked at."""
    open_files: int | None = None
    """The soft limit of open files, -1 without limit."""
    processes: frozenset[str] = frozenset()
    networkmanager_ignores: bool | None = None
    """Whether NetworkManager's files name `cali*` unmanaged; None where it is not installed."""
    networkd_keeps_routes: bool | None = None
    """Whether systemd-networkd is told to leave foreign routes; None where not installed."""
    secret_variables: tuple[str, ...] = ()
    listeners: Mapping[int, str] | None = None
    """TCP port to the process that listens on it, empty if the process cannot be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetLink:
    """An interface: name, kind as the kernel calls it, MTU."""

    name: str
    mtu: int
    kind: str = ""
    up: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRoute:
    """A unicast route of the main table."""

    dst: IPNetwork
    interface: str
    protocol: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which address of a family this machine would take, or why none."""

    address: str = ""
    why: str = ""
    error: str = ""
    interface: str = ""
    source_to_peers: str = ""
    """The source address that the kernel takes towards another node, if there is one."""
    peer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Interfaces, routes and the address choice."""

    interfaces: tuple[Interface, ...] = ()
    links: tuple[NetLink, ...] = ()
    routes: tuple[HostRoute, ...] = ()
    wishes: Mapping[int, AddressWish] = field(default_factory=dict)
    choices: Mapping[int, Choice] = field(default_factory=dict)
    backend: str = "bird"
    router_id: str = ""
    pod_mtu: int | None = None
    """What `/var/lib/calico/mtu` or the CNI configuration says; None if neither does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What came back from another node.

    `small`, `full`: `answer`, `too big` (this machine or a router said so), `silent`, or an
    error. `size` is the full-size packet in bytes. `bgp`: `open`, `refused`, `filtered` or an
    error.
    """

    node: str
    address: str
    small: str = ""
    full: str = ""
    size: int = 0
    bgp: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate in a file, or the one that an endpoint serves."""

    source: str
    subject: str = ""
    issuer: str = ""
    not_before: datetime | None = None
    not_after: datetime | None = None
    names: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One etcd endpoint: what its TCP and TLS said, and its idea of the time."""

    url: str
    host: str
    error: str = ""
    certificate: Certificate | None = None
    verify_error: str = ""
    clock: datetime | None = None
    asked_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherNode:
    """A Node of the datastore: name, and addresses with their masks."""

    name: str
    ipv4: str = ""
    ipv6: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A pool. One that is `disabled` may still hold pods, or just mark a network."""

    name: str
    cidr: IPNetwork
    encapsulation: str = ""
    cross_subnet: bool = False
    disabled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """The datastore; `configured` False: no endpoint is set, nothing was asked."""

    configured: bool = False
    config_error: str = ""
    error: str | None = None
    """Empty when it answered, else what was said; None when it was not asked."""
    milliseconds: float = 0.0
    endpoints: tuple[Endpoint, ...] = ()
    files: tuple[Certificate, ...] = ()
    file_errors: tuple[str, ...] = ()
    key_modes: Mapping[str, int] = field(default_factory=dict)
    nodes: tuple[OtherNode, ...] = ()
    pools: tuple[Pool, ...] = ()
    service_ranges: tuple[IPNetwork, ...] = ()
    locked: bool = False
    cluster_version: str = ""

    @property
    def allocating(self) -> tuple[Pool, ...]:
        """The pools of which pods get addresses: whatever they overlap hurts."""
        return tuple(pool for pool in self.pools if not pool.disabled)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeProxy:
    """The settings of a running kube-proxy."""

    cluster_cidr: str = ""
    masquerade_all: bool = False
    mode: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CNIFile:
    """A file of the configuration directory in the order of the runtime; plugin types in it."""

    name: str
    types: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubernetes:
    """What the kubelet and the runtime are told, and what lies where they look."""

    kubelet: bool = False
    kube_proxy: KubeProxy | None = None
    files: tuple[CNIFile, ...] = ()
    plugins: frozenset[str] = frozenset()
    directories: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """Who says so (`kubelet`, `containerd`, `cri-o`) to (configuration, binaries) directories."""
    unheard: frozenset[str] = frozenset()
    """Who of them says so in vain: a kubelet before 1.24 whose runtime looks for itself."""
    unseen: frozenset[str] = frozenset()
    """Which of the two directories below this container does not have."""
    net_dir: str = "/etc/cni/net.d"
    bin_dir: str = "/opt/cni/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything about this machine that a check may look at."""

    now: datetime
    kernel: Kernel = Kernel()
    host: Host = Host()
    network: Network = Network()
    store: Store = Store()
    kubernetes: Kubernetes = Kubernetes()
    probes: tuple[Probe, ...] = ()
