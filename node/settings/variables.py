"""The table of every variable that a node reads, with its readers.

`docs/node.md` shows it. Nothing here reads anything: `reader` is the module that does, and
`tests/node/test_variables.py` holds that it does, and that each has a case.
Source: docs/reference/data-model.md#environment-of-a-node; ours beside Calico's.
"""

from __future__ import annotations

from dataclasses import dataclass

ENVIRONMENT = "node.settings.environment"


@dataclass(frozen=True, slots=True)
class Variable:
    """`names`: with `{4|6}` for both families; a `*` stands for a family of names."""

    names: str
    default: str
    meaning: str
    reader: str = ENVIRONMENT

    def each(self) -> tuple[str, ...]:
        """The names in full."""
        listed = [name.strip() for name in self.names.split(",")]
        return tuple(
            name.replace("{4|6}", version)
            for name in listed
            for version in (("4", "6") if "{4|6}" in name else ("",))
        )


VARIABLES = (
    Variable(
        "NODENAME",
        "",
        "the node's name; else the nodename file, else HOSTNAME, else the host's name, both in"
        " lower case",
    ),
    Variable("HOSTNAME", "", "the name where NODENAME and the nodename file say nothing"),
    Variable(
        "CALICO_NODENAME_FILE", "/var/lib/calico/nodename", "written last, when all else is done"
    ),
    Variable(
        "CALICO_SHUTDOWN_TIMESTAMP_FILE",
        "/var/lib/calico/shutdownTS",
        "where `calico-node shutdown` writes the time (RFC 3339)",
    ),
    Variable(
        "DATASTORE_TYPE, ETCD_*, KUBECONFIG, K8S_*, CALICO_API_GROUP",
        "",
        "the datastore, and the Kubernetes API beside it",
        "libcalico.apiconfig",
    ),
    Variable(
        "WAIT_FOR_DATASTORE",
        "true",
        "`false`: end with an error when the datastore does not answer (Calico's default, where"
        " the container is then started again)",
    ),
    Variable(
        "CALICO_NETWORKING_BACKEND",
        "bird",
        "`bird`: BGP; `vxlan`: no BGP, routes from the datastore; `none`: policy only: no address,"
        " no AS number, no condition of the Kubernetes node",
    ),
    Variable("CALICO_NETWORKING", "", "`false`: the backend `none`, as it was once written"),
    Variable(
        "IP",
        "",
        "IPv4: empty detects once and then keeps what is stored; `autodetect` detects at every"
        " start and while running; `none` keeps what is stored; or an address, whose mask is"
        " the interface's where none is given",
    ),
    Variable("IP6", "none", "IPv6: `autodetect`, `none` or an address"),
    Variable("IP_AUTODETECTION_METHOD, IP6_AUTODETECTION_METHOD", "first-found", "see below"),
    Variable(
        "DISABLE_NODE_IP_CHECK",
        "false",
        "`true`: an address that another node has is not refused",
    ),
    Variable(
        "AUTODETECT_POLL_INTERVAL",
        "60s",
        "how often the addresses are looked at again, beside the kernel's own notice",
    ),
    Variable("AS", "", "the node's AS number, decimal or dotted"),
    Variable(
        "CALICO_ROUTER_ID",
        "the IPv4 address",
        "an IPv4 address, or `hash`: made of the node's name",
        "bgp.serving",
    ),
    Variable(
        "CALICO_K8S_NODE_REF",
        "",
        "what Kubernetes calls this node, where it is not the node's name; stored in `orchRefs`",
    ),
    Variable("NO_DEFAULT_POOLS", "false", "`true`: make no pools"),
    Variable("CALICO_IPV{4|6}POOL_CIDR", "see below", "`none`: no pool of this family"),
    Variable("CALICO_IPV{4|6}POOL_BLOCK_SIZE", "26, 122", "20 to 32, 116 to 128"),
    Variable("CALICO_IPV4POOL_IPIP", "Never", "Never, Always, CrossSubnet"),
    Variable("CALICO_IPV{4|6}POOL_VXLAN", "Never", "Never, Always, CrossSubnet"),
    Variable(
        "CALICO_IPV{4|6}POOL_NAT_OUTGOING", "true, false", "false, 0, no, n, f; all else is true"
    ),
    Variable("CALICO_IPV{4|6}POOL_NODE_SELECTOR", "all()", "which nodes take blocks of it"),
    Variable("CALICO_IPV{4|6}POOL_DISABLE_BGP_EXPORT", "false", "`true`: not announced"),
    Variable(
        "CALICO_POOL_ALLOW_OVERLAP",
        "false",
        "`true`: a default pool may lie over a network that is in use already",
    ),
    Variable(
        "CLUSTER_TYPE",
        "",
        "stored in ClusterInformation, with `kubeadm` and `rancher` where they are found",
    ),
    Variable(
        "CALICO_STARTUP_LOGLEVEL, CALICO_LOG_LEVEL, CALICO_LOG_FORMAT",
        "INFO, text",
        "of this process, and the last two of its agents (`json`: one object a line)",
        "node.main",
    ),
    Variable(
        "CALICO_DISABLE_FILE_LOGGING",
        "",
        "`true`: the agents log where this process does; CALICO_LOG_DIR does not count; `false`:"
        " into files, below /var/log/calico where that names no directory",
    ),
    Variable("CALICO_LOG_DIR", "", "the directory of the agents' log files"),
    Variable("CALICO_DISABLE_FELIX", "false", "`true`: felix is started by other means"),
    Variable(
        "CALICO_MANAGE_CNI",
        "true",
        "`false`: the CNI plugin's kubeconfig is not renewed (in a pod only; our own plugin needs"
        " none)",
    ),
    Variable(
        "CALICO_CNI_SERVICE_ACCOUNT", "calico-cni-plugin", "whose token that kubeconfig holds"
    ),
    Variable("CNI_NET_DIR", "/host/etc/cni/net.d", "where that kubeconfig lies", "node.cni_token"),
    Variable("FELIX_IPV6SUPPORT", "true", "`false`: felix does no IPv6, and there is no IPv6 pool"),
    Variable(
        "FELIX_*",
        "",
        "every parameter of felix ([felix-configuration.md](felix-configuration.md)), also"
        " FELIX_HEALTHENABLED, FELIX_HEALTHHOST, FELIX_HEALTHPORT",
        "felix.config.resolve",
    ),
    Variable(
        "CALICO_BGP_*, CALICO_ADVERTISE_CLUSTER_IPS",
        "",
        "the speaker ([bgp.md](bgp.md))",
        "bgp.serving",
    ),
    Variable(
        "CALICO_BIRD_CTL_DIR",
        "/var/run/calico",
        "where `bird.ctl` and `bird6.ctl` lie; `none`: no such sockets",
        "bgp.bird.birdctl",
    ),
    Variable(
        "CALICO_CNI_CRI_SOCKET, CALICO_CNI_HEALTHPORT",
        "none, 9096",
        "the CNI daemon: the runtime's socket, whose list of sandboxes says which pods are gone"
        " ([its risk](security.md#the-pods)); its health and metrics",
        "cni.server.daemon",
    ),
    Variable(
        "NOTIFY_SOCKET",
        "",
        "set by systemd (`Type=notify`): told when the agents are started",
        "node.notify",
    ),
)


def rows() -> list[str]:
    """The table as Markdown."""
    lines = ["| variable | default | meaning |", "|---|---|---|"]
    for one in VARIABLES:
        names = ", ".join(f"`{name.strip()}`" for name in one.names.split(","))
        lines.append(f"| {names.replace('|', chr(92) + '|')} | {one.default} | {one.meaning} |")
    return lines
