"""Felix's parameters, as one table (wall 7): name, type, default, environment, stored field.

Code reads the attributes of `Config`; documentation and the CRD read `PARAMETERS`, which is
made from it. Names and defaults are Calico's (dataplane reference 7.6, data model 2.8).
`FELIX_<NAME>` in the environment, `<Name> = value` in the file, `<field>` in a
FelixConfiguration.
Tested in tests/felix/test_config.py.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from felix.config import kinds


@dataclass(frozen=True, slots=True)
class Parameter:
    """One row of the table. `local` ones are never taken from the datastore."""

    name: str
    attribute: str
    parse: kinds.Parser
    default: Any
    field: str
    doc: str
    local: bool = False

    @property
    def env(self) -> str:
        """Its name in the environment."""
        return f"FELIX_{self.name.upper()}"


def _row(
    name: str,
    parse: kinds.Parser,
    default: Any,
    doc: str,
    *,
    field: str = "",
    local: bool = False,
) -> Any:
    field = field or name[0].lower() + name[1:]
    return dataclasses.field(
        default=default,
        metadata={"name": name, "parse": parse, "field": field, "doc": doc, "local": local},
    )


_ALLOW = kinds.choice("ACCEPT", "RETURN")
_PORT = kinds.integer(1, 65535)


@dataclass(frozen=True, slots=True)
class Config:
    """The effective parameters of one felix."""

    felix_hostname: str = _row(
        "FelixHostname", kinds.text, "", "Name of this node; NODENAME if unset.", local=True
    )
    iptables_refresh_interval: float = _row(
        "IptablesRefreshInterval", kinds.duration, 180.0, "How often rules are read back; 0: never."
    )
    route_refresh_interval: float = _row(
        "RouteRefreshInterval", kinds.duration, 90.0, "How often routes are read back; 0: never."
    )
    interface_refresh_interval: float = _row(
        "InterfaceRefreshInterval", kinds.duration, 90.0, "How often links are read back; 0: never."
    )
    ipsets_refresh_interval: float = _row(
        "IpsetsRefreshInterval", kinds.duration, 90.0, "How often ipsets are read back; 0: never."
    )
    max_ipset_size: int = _row(
        "MaxIpsetSize", kinds.integer(1, 1 << 31), 1048576, "Members an ipset may hold."
    )
    interface_prefix: tuple[str, ...] = _row(
        "InterfacePrefix", kinds.prefixes, ("cali",), "Prefixes of workload interfaces."
    )
    chain_insert_mode: str = _row(
        "ChainInsertMode", kinds.choice("insert", "append"), "insert", "Where our hooks stand."
    )
    default_endpoint_to_host_action: str = _row(
        "DefaultEndpointToHostAction",
        kinds.choice("DROP", "RETURN", "ACCEPT"),
        "DROP",
        "What happens to traffic from a workload to its node after the workload's policy.",
    )
    iptables_filter_allow_action: str = _row(
        "IptablesFilterAllowAction", _ALLOW, "ACCEPT", "How the filter table lets pass."
    )
    iptables_mangle_allow_action: str = _row(
        "IptablesMangleAllowAction", _ALLOW, "ACCEPT", "How the mangle table lets pass."
    )
    iptables_filter_deny_action: str = _row(
        "IptablesFilterDenyAction", kinds.choice("DROP", "REJECT"), "DROP", "How denied is denied."
    )
    iptables_backend: str = _row(
        "IptablesBackend", kinds.choice("auto", "legacy", "nft"), "auto", "Which iptables."
    )
    iptables_mark_mask: int = _row(
        "IptablesMarkMask", kinds.mark_mask, 0xFFFF0000, "Mark bits that felix may use."
    )
    iptables_lock_timeout: float = _row(
        "IptablesLockTimeoutSecs", kinds.duration, 10.0, "How long to wait for the xtables lock."
    )
    ipv6_support: bool = _row("Ipv6Support", kinds.boolean, True, "Whether IPv6 is programmed.")
    ip_forwarding: str = _row(
        "IPForwarding",
        kinds.choice("Enabled", "Disabled"),
        "Enabled",
        "Whether felix switches forwarding on.",
        field="ipForwarding",
    )
    log_prefix: str = _row(
        "LogPrefix", kinds.text, "calico-packet", "Begins the line of a Log rule; %t %k %n %p."
    )
    vxlan_port: int = _row(
        "VXLANPort", _PORT, 4789, "UDP port of VXLAN, barred to workloads.", field="vxlanPort"
    )
    allow_vxlan_from_workloads: bool = _row(
        "AllowVXLANPacketsFromWorkloads", kinds.boolean, False, "Let workloads send VXLAN."
    )
    allow_ipip_from_workloads: bool = _row(
        "AllowIPIPPacketsFromWorkloads", kinds.boolean, False, "Let workloads send IP in IP."
    )
    nat_port_range: tuple[int, int] | None = _row(
        "NATPortRange", kinds.port_range, None, "Ports of outgoing NAT.", field="natPortRange"
    )
    nat_outgoing_address: str = _row(
        "NATOutgoingAddress",
        kinds.address,
        "",
        "Source of outgoing NAT; empty: masquerade.",
        field="natOutgoingAddress",
    )
    nat_outgoing_exclusions: str = _row(
        "NATOutgoingExclusions",
        kinds.choice("IPPoolsOnly", "IPPoolsAndHostIPs"),
        "IPPoolsOnly",
        "Destinations that outgoing NAT leaves alone.",
        field="natOutgoingExclusions",
    )
    nat_outgoing_interface_filter: str = _row(
        "IptablesNATOutgoingInterfaceFilter", kinds.text, "", "Only NAT what leaves by this link."
    )
    health_enabled: bool = _row("HealthEnabled", kinds.boolean, False, "Serve health over HTTP.")
    health_host: str = _row("HealthHost", kinds.text, "localhost", "Address of the health server.")
    health_port: int = _row("HealthPort", _PORT, 9099, "Port of the health server.")
    prometheus_metrics_enabled: bool = _row(
        "PrometheusMetricsEnabled", kinds.boolean, False, "Serve /metrics."
    )
    prometheus_metrics_host: str = _row(
        "PrometheusMetricsHost", kinds.text, "", "Address of the metrics server; empty: any."
    )
    prometheus_metrics_port: int = _row(
        "PrometheusMetricsPort", _PORT, 9091, "Port of the metrics server."
    )
    reporting_interval: float = _row(
        "ReportingIntervalSecs",
        kinds.duration,
        30.0,
        "How often felix reports its status; 0: never.",
        field="reportingInterval",
    )
    endpoint_status_path_prefix: str = _row(
        "EndpointStatusPathPrefix",
        kinds.text,
        "/var/run/calico",
        "Where the directory endpoint-status lies; none: no files.",
    )
    log_severity_screen: str = _row(
        "LogSeverityScreen",
        kinds.choice("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"),
        "INFO",
        "What is logged.",
    )


PARAMETERS: tuple[Parameter, ...] = tuple(
    Parameter(
        name=row.metadata["name"],
        attribute=row.name,
        parse=row.metadata["parse"],
        default=row.default,
        field=row.metadata["field"],
        doc=row.metadata["doc"],
        local=row.metadata["local"],
    )
    for row in dataclasses.fields(Config)
)

ELSEWHERE = frozenset(
    {
        "datastoretype",
        "etcdaddr",
        "etcdscheme",
        "etcdendpoints",
        "etcdkeyfile",
        "etcdcertfile",
        "etcdcafile",
        "calicoversion",
        "clusterguid",
        "clustertype",
    }
)
"""Parameters of Calico's that are read by others (the datastore client) or carry no setting."""
