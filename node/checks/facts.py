"""The facts about this machine that the checks read, as plain data.

`None` (or an empty `why` beside it) means that a fact is not known; a check then says so and passes
no judgement. `node/gather/` collects the facts.
Tested in tests/node/test_checks.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import IPv4Address, IPv6Address

from libcalico.model.keys import IPNetwork
from node.checks.datastore_facts import OtherNode, Store
from node.identity.autodetect import Interface
from node.settings.environment import AddressSetting

IPAddress = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The kernel. `release` is uname's. `modules`: name to its state (`loaded`, `built in`,
    `can be loaded`, `answers`); `modules_known`: whether a missing name means anything."""

    release: str = ""
    modules: Mapping[str, str] = field(default_factory=dict)
    modules_known: bool = False
    sysctls: Mapping[str, str] = field(default_factory=dict)
    native: bool = False
    """Whether rules are in nftables: then iptables and ipset and their modules are not used."""
    iptables: Mapping[str, str] = field(default_factory=dict)
    """Installed program to its version."""
    rules: Mapping[str, int] | None = None
    """Back end (`nft`, `legacy`) to the number of rules that it holds."""
    backend: str = ""
    chains: tuple[str, ...] = ()
    ipset: str | None = None
    """Empty if the kernel listed its sets, else the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A directory that we write to, or would make, and its free space."""

    path: str
    writable: bool
    free_bytes: int = 0
    free_percent: float = 100.0
    free_inodes_percent: float = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine around the kernel."""

    root: bool = True
    node_name: str = ""
    name_error: str = ""
    nodename_file: str = ""
    clock_synchronised: bool | None = None
    clock_error_seconds: float | None = None
    spaces: tuple[Space, ...] = ()
    unseen: tuple[str, ...] = ()
    """Directories that this container does not have, so that they are not checked."""
    open_files: int | None = None
    """The soft limit of open files, -1 without limit."""
    processes: frozenset[str] = frozenset()
    networkmanager_ignores: bool | None = None
    """Whether NetworkManager's files name `cali*` unmanaged; None where it is not installed."""
    networkd_keeps_routes: bool | None = None
    """Whether systemd-networkd leaves foreign routes alone; None where it is not installed."""
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
    """The address of a family that this machine would use, or the error why there is none."""

    address: str = ""
    why: str = ""
    error: str = ""
    interface: str = ""
    source_to_peers: str = ""
    """The source address that the kernel uses towards another node, if there is one."""
    peer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Interfaces, routes and the address choice."""

    interfaces: tuple[Interface, ...] = ()
    links: tuple[NetLink, ...] = ()
    routes: tuple[HostRoute, ...] = ()
    address_settings: Mapping[int, AddressSetting] = field(default_factory=dict)
    choices: Mapping[int, Choice] = field(default_factory=dict)
    backend: str = "bird"
    router_id: str = ""
    pod_mtu: int | None = None
    """The MTU in `/var/lib/calico/mtu` or the CNI configuration; None if neither has one."""

    @property
    def has_ipv6(self) -> bool:
        """Whether `IP6` asks for an IPv6 address."""
        setting = self.address_settings.get(6)
        return setting is not None and setting.mode not in ("", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The answers of another node.

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
class KubeProxy:
    """The settings of a running kube-proxy."""

    cluster_cidr: str = ""
    masquerade_all: bool = False
    mode: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CNIFile:
    """A file of the configuration directory, and the plugin types in it."""

    name: str
    types: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubernetes:
    """The settings of kubelet and runtime, and the content of their directories."""

    kubelet: bool = False
    kube_proxy: KubeProxy | None = None
    files: tuple[CNIFile, ...] = ()
    plugins: frozenset[str] = frozenset()
    directories: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """Program (`kubelet`, `containerd`, `cri-o`) to its (configuration, binaries) directories."""
    unheard: frozenset[str] = frozenset()
    """Programs whose setting has no effect: a kubelet before 1.24 with a remote runtime."""
    unseen: frozenset[str] = frozenset()
    """Those of the two directories below that this container does not have."""
    net_dir: str = "/etc/cni/net.d"
    bin_dir: str = "/opt/cni/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything about this machine that a check may look at."""

    now: datetime
    kernel: Kernel = Kernel()
    host: Host = Host()
    network: Network = Network()
    store: Store = field(default_factory=Store)
    kubernetes: Kubernetes = Kubernetes()
    probes: tuple[Probe, ...] = ()

    @property
    def own_node(self) -> OtherNode | None:
        """This machine's Node in the datastore."""
        return next((one for one in self.store.nodes if one.name == self.host.node_name), None)
