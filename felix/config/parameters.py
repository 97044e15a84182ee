"""Felix's parameters, as one table (wall 7): name, type, default, environment, stored field.

Code reads the attributes of `Config`; documentation and the CRD read `PARAMETERS`, which is
made from it. Names and defaults are Calico's (docs/reference/dataplane.md#defaults-of-felix,
docs/reference/data-model.md#felixconfiguration); those of Calico's that felix does not act on stand
in `felix/config/others.py`. `FELIX_<NAME>` in the environment, `<Name> = value` in the file,
`<field>` in a FelixConfiguration.
Tested in tests/felix/config/test_config.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from felix.config import kinds
from felix.config.rows import Parameter, table_of
from felix.config.rows import row as _row

_ALLOW = kinds.choice("ACCEPT", "RETURN")
_PORT = kinds.integer(1, 65535)
_MTU = kinds.integer(0, 65535)
_FAILSAFE_IN = (
    (6, 22), (17, 68), (6, 179), (6, 2379), (6, 2380), (6, 5473), (6, 6443), (6, 6666), (6, 6667)
)  # fmt: skip
_FAILSAFE_OUT = (
    (17, 53), (17, 67), (6, 179), (6, 2379), (6, 2380), (6, 5473), (6, 6443), (6, 6666), (6, 6667)
)  # fmt: skip
MTU_IFACES = r"^((en|wl|ww|sl|ib)[Pcopsvx].*|(eth|wlan|wwan).*)"


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
        "MaxIpsetSize",
        kinds.integer(1, 1 << 31),
        1048576,
        "Members an ipset may hold.",
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
        "IptablesBackend",
        kinds.choice("auto", "legacy", "nft"),
        "auto",
        "Which iptables.",
        restart=True,
    )
    nftables_mode: str = _row(
        "NFTablesMode",
        kinds.choice("Enabled", "Disabled", "Auto"),
        "Auto",
        "Rules in nftables, not iptables; Auto: where kube-proxy does so, or iptables cannot work.",
        field="nftablesMode",
    )
    nftables_refresh_interval: float = _row(
        "NftablesRefreshInterval", kinds.duration, 180.0, "As IptablesRefreshInterval."
    )
    nftables_filter_allow_action: str = _row(
        "NftablesFilterAllowAction", _ALLOW, "ACCEPT", "As IptablesFilterAllowAction."
    )
    nftables_mangle_allow_action: str = _row(
        "NftablesMangleAllowAction", _ALLOW, "ACCEPT", "As IptablesMangleAllowAction."
    )
    nftables_filter_deny_action: str = _row(
        "NftablesFilterDenyAction", kinds.choice("DROP", "REJECT"), "DROP", "How denied is denied."
    )
    nftables_mark_mask: int = _row(
        "NftablesMarkMask", kinds.mark_mask, 0xFFFF0000, "As IptablesMarkMask."
    )
    iptables_mark_mask: int = _row(
        "IptablesMarkMask", kinds.mark_mask, 0xFFFF0000, "Mark bits that felix may use."
    )
    iptables_lock_timeout: float = _row(
        "IptablesLockTimeoutSecs",
        kinds.duration,
        10.0,
        "How long to wait for the xtables lock.",
        restart=True,
    )
    ipv6_support: bool = _row(
        "Ipv6Support", kinds.boolean, True, "Whether IPv6 is programmed.", restart=True
    )
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
        "VXLANPort", _PORT, 4789, "UDP port of VXLAN; barred to workloads.", field="vxlanPort"
    )
    vxlan_vni: int = _row(
        "VXLANVNI", kinds.integer(1, (1 << 24) - 1), 4096, "Network of VXLAN.", field="vxlanVNI"
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
    ipip_enabled: bool | None = _row(
        "IpInIpEnabled",
        kinds.boolean,
        None,
        "Whether IP in IP is in use; unset: as the pools say.",
        field="ipipEnabled",
    )
    vxlan_enabled: bool | None = _row(
        "VXLANEnabled",
        kinds.boolean,
        None,
        "Whether VXLAN is in use; unset: as the pools say.",
        field="vxlanEnabled",
    )
    program_cluster_routes: str = _row(
        "ProgramClusterRoutes",
        kinds.choice("Enabled", "Disabled", "EnabledIPIPOnly", "EnabledNoEncapOnly"),
        "",
        "Enabled, EnabledNoEncapOnly: routes of pools without a tunnel come from the datastore,"
        " not from bgp; unset: they do where no bgp runs. Tunnels' always do.",
    )
    ipip_mtu: int = _row(
        "IpInIpMtu", _MTU, 0, "MTU of tunl0; 0: the host's less 20.", field="ipipMTU"
    )
    vxlan_mtu: int = _row(
        "VXLANMTU", _MTU, 0, "MTU of vxlan.calico; 0: the host's less 50.", field="vxlanMTU"
    )
    vxlan_mtu_v6: int = _row(
        "VXLANMTUV6", _MTU, 0, "MTU of vxlan-v6.calico; 0: the host's less 70.", field="vxlanMTUV6"
    )
    external_nodes_list: tuple[str, ...] = _row(
        "ExternalNodesList",
        kinds.networks4,
        (),
        "Addresses and networks that tunnels are taken from beside the cluster's nodes.",
    )
    feature_detect_override: tuple[tuple[str, bool], ...] = _row(
        "FeatureDetectOverride",
        kinds.features,
        (),
        "ChecksumOffloadBroken=true: tunnels send no packet whose checksum is left to the network"
        " card; =false: they may; unset: an old kernel, or a test of VXLAN, decides.",
    )
    mtu_iface_pattern: str = _row(
        "MTUIfacePattern",
        kinds.pattern,
        MTU_IFACES,
        "Whose MTU counts as the host's: the least of the interfaces of these names.",
        field="mtuIfacePattern",
    )
    require_mtu_file: bool = _row(
        "RequireMTUFile",
        kinds.boolean,
        False,
        "Not ready while the file of the pods' MTU cannot be written.",
        field="requireMTUFile",
    )
    nat_outgoing_interface_filter: str = _row(
        "IptablesNATOutgoingInterfaceFilter", kinds.text, "", "Only NAT what leaves by this link."
    )
    health_enabled: bool = _row("HealthEnabled", kinds.boolean, False, "Serve health over HTTP.")
    health_host: str = _row("HealthHost", kinds.text, "localhost", "Address of the health server.")
    health_port: int = _row("HealthPort", _PORT, 9099, "Port of the health server.")
    health_timeout_overrides: tuple[tuple[str, float], ...] = _row(
        "HealthTimeoutOverrides",
        kinds.timeouts,
        (),
        "Other time limits of single health reporters: `Name=90s,Name=2m`.",
    )
    dataplane_watchdog_timeout: float = _row(
        "DataplaneWatchdogTimeout",
        kinds.at_least(20.0),
        90.0,
        "How long the main loop may be silent and still counts as alive.",
    )
    prometheus_metrics_enabled: bool = _row(
        "PrometheusMetricsEnabled", kinds.boolean, False, "Serve /metrics."
    )
    prometheus_metrics_host: str = _row(
        "PrometheusMetricsHost", kinds.text, "", "Address of the metrics server; empty: any."
    )
    prometheus_metrics_port: int = _row(
        "PrometheusMetricsPort", _PORT, 9091, "Port of the metrics server."
    )
    prometheus_process_metrics_enabled: bool = _row(
        "PrometheusProcessMetricsEnabled", kinds.boolean, True, "Serve the metrics process_*."
    )
    reporting_interval: float = _row(
        "ReportingIntervalSecs",
        kinds.duration,
        30.0,
        "How often felix reports its status, above 500 nodes seldom by a write; 0: never.",
        field="reportingInterval",
    )
    reporting_ttl: float = _row(
        "ReportingTTLSecs",
        kinds.duration,
        90.0,
        "How long a reported status lives in the datastore unless it is reported again.",
        field="reportingTTL",
    )
    endpoint_reporting_enabled: bool = _row(
        "EndpointReportingEnabled",
        kinds.boolean,
        False,
        "Report the state of each endpoint to the datastore.",
    )
    endpoint_reporting_delay: float = _row(
        "EndpointReportingDelaySecs",
        kinds.duration,
        1.0,
        "Time between two reports of endpoints.",
        field="endpointReportingDelay",
    )
    openstack_region: str = _row(
        "OpenstackRegion", kinds.region, "", "Region in the keys of reported states."
    )
    endpoint_status_path_prefix: str = _row(
        "EndpointStatusPathPrefix",
        kinds.text,
        "/var/run/calico",
        "Where the directory endpoint-status lies; none: no files.",
    )
    failsafe_inbound_host_ports: tuple[kinds.Failsafe, ...] = _row(
        "FailsafeInboundHostPorts",
        kinds.failsafes,
        tuple((number, port, "") for number, port in _FAILSAFE_IN),
        "Ports of the host that no host endpoint's policy closes.",
    )
    failsafe_outbound_host_ports: tuple[kinds.Failsafe, ...] = _row(
        "FailsafeOutboundHostPorts",
        kinds.failsafes,
        tuple((number, port, "") for number, port in _FAILSAFE_OUT),
        "Ports that the host reaches whatever a host endpoint's policy says.",
    )
    service_loop_prevention: str = _row(
        "ServiceLoopPrevention",
        kinds.choice("Drop", "Reject", "Disabled"),
        "Drop",
        "What becomes of a packet for a service that no proxy translated.",
    )
    workload_source_spoofing: str = _row(
        "WorkloadSourceSpoofing",
        kinds.choice("Disabled", "Any"),
        "Disabled",
        "Whether workloads may ask for further source addresses.",
    )
    floating_ips: str = _row(
        "FloatingIPs",
        kinds.choice("Disabled", "Enabled"),
        "Disabled",
        "Whether floating addresses of workloads are translated.",
        field="floatingIPs",
    )
    log_action_rate_limit: tuple[int, str] | None = _row(
        "LogActionRateLimit", kinds.rate, None, "How often each Log rule may write; empty: always."
    )
    log_action_rate_limit_burst: int = _row(
        "LogActionRateLimitBurst",
        kinds.integer(0, 9999),
        5,
        "How many packets a Log rule writes before its limit.",
    )
    disable_conntrack_invalid_check: bool = _row(
        "DisableConntrackInvalidCheck",
        kinds.boolean,
        False,
        "Let packets of no known connection come to the policy.",
    )
    flow_logs_goldmane_server: str = _row(
        "FlowLogsGoldmaneServer",
        kinds.text,
        "",
        "HOST:PORT of the aggregator that flows are sent to; empty: none.",
    )
    flow_logs_local_reporter: str = _row(
        "FlowLogsLocalReporter",
        kinds.choice("Disabled", "Enabled"),
        "Disabled",
        "Whether flows go to a file and to a socket on this node.",
    )
    flow_logs_flush_interval: float = _row(
        "FlowLogsFlushInterval",
        kinds.at_least(1.0),
        300.0,
        "How often flows are sent; to an aggregator in multiples of 15 s.",
    )
    flow_logs_policy_evaluation_mode: str = _row(
        "FlowLogsPolicyEvaluationMode",
        kinds.choice("None", "Continuous"),
        "Continuous",
        "Whether flows say what staged policies would have done.",
    )
    typha_ca_file: str = _row(
        "TyphaCAFile", kinds.text, "", "Authorities of the aggregator's certificate.", local=True
    )
    typha_cert_file: str = _row(
        "TyphaCertFile", kinds.text, "", "Certificate to show to the aggregator.", local=True
    )
    typha_key_file: str = _row(
        "TyphaKeyFile", kinds.text, "", "Key of that certificate.", local=True
    )
    log_severity_screen: str = _row(
        "LogSeverityScreen",
        kinds.choice("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"),
        "INFO",
        "What is logged.",
    )


PARAMETERS: tuple[Parameter, ...] = table_of(Config)
