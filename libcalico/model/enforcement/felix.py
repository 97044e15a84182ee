"""The rows of Felix's parameters in a FelixConfiguration
(docs/reference/data-model.md#felixconfiguration).

The `ENFORCED` ones are those of felix/config/parameters.py; tests/libcalico/test_enforcement.py
compares the two. A harmless value asks for what happens anyway, which is mostly Calico's default.
"""

from __future__ import annotations

from libcalico.model.enforcement.states import Row, State

ENFORCED = """
    ipv6Support routeRefreshInterval interfaceRefreshInterval iptablesRefreshInterval
    ipsetsRefreshInterval maxIpsetSize iptablesBackend interfacePrefix chainInsertMode
    defaultEndpointToHostAction iptablesFilterAllowAction iptablesMangleAllowAction
    iptablesFilterDenyAction logPrefix logSeverityScreen vxlanPort
    allowVXLANPacketsFromWorkloads allowIPIPPacketsFromWorkloads endpointStatusPathPrefix
    iptablesMarkMask healthEnabled healthHost healthPort prometheusMetricsEnabled
    prometheusMetricsHost prometheusMetricsPort natPortRange natOutgoingAddress
    natOutgoingExclusions ipForwarding iptablesNATOutgoingInterfaceFilter nodeSelector
    dataplaneWatchdogTimeout healthTimeoutOverrides openstackRegion mtuIfacePattern
    requireMTUFile ipipMTU vxlanMTU vxlanMTUV6 reportingInterval reportingTTL
    endpointReportingEnabled endpointReportingDelay prometheusProcessMetricsEnabled
    failsafeInboundHostPorts failsafeOutboundHostPorts serviceLoopPrevention
    workloadSourceSpoofing floatingIPs logActionRateLimit logActionRateLimitBurst
    externalNodesList
    vxlanVNI ipipEnabled vxlanEnabled programClusterRoutes
    disableConntrackInvalidCheck nftablesMode nftablesRefreshInterval nftablesFilterAllowAction
    nftablesMangleAllowAction nftablesFilterDenyAction nftablesMarkMask
    flowLogsGoldmaneServer flowLogsLocalReporter flowLogsFlushInterval
    flowLogsPolicyEvaluationMode
"""

_STORED: tuple[tuple[str, str], ...] = (
    ("the data plane is part of felix", "dataplaneDriver"),
    (
        "iptables is read back at intervals only, and waits for its lock itself",
        "iptablesPostWriteCheckInterval iptablesLockProbeInterval",
    ),
    ("features are detected", "featureGates"),
    ("netlink has a fixed time limit", "netlinkTimeout"),
    ("every link is watched, whatever its name", "interfaceExclude"),
    ("logs go to standard error", "logSeveritySys logDebugFilenameRegex"),
    ("metrics are served without TLS", "prometheusMetricsCAFile prometheusMetricsCertFile"),
    ("metrics are served without TLS", "prometheusMetricsKeyFile prometheusMetricsClientAuth"),
    ("nothing is synchronised to workloads", "policySyncPathPrefix"),
    ("routes of devices have no source", "deviceRouteSourceAddress deviceRouteSourceAddressIPv6"),
    ("routes have felix's own protocol number", "deviceRouteProtocol"),
    (
        "this is no debugging aid of this felix",
        "debugMemoryProfilePath debugDisableLogDropping debugSimulateCalcGraphHangAfter"
        " debugSimulateDataplaneHangAfter debugSimulateDataplaneApplyDelay debugHost debugPort"
        " flowLogsCollectorDebugTrace",
    ),
    ("meshes are not followed", "istioDSCPMark"),
    ("live migrations are not followed", "liveMigrationRouteConvergenceTime"),
    ("routes have one metric", "ipv4ElevatedRoutePriority ipv6ElevatedRoutePriority"),
    ("neighbours are answered for as always", "localSubnetL2ReachabilityRefreshInterval"),
)

_HARMLESS: dict[str, tuple[str, tuple[object, ...]]] = {
    "useInternalDataplaneDriver": ("the data plane is part of felix", (True,)),
    "metadataAddr": ("OpenStack is not served", ("127.0.0.1", "none")),
    "metadataPort": ("OpenStack is not served", (8775,)),
    "logFilePath": ("logs go to standard error", ("/var/log/calico/felix.log", "none")),
    "logSeverityFile": ("logs go to standard error", ("Info", "none")),
    "prometheusGoMetricsEnabled": ("one set of metrics is served", (True,)),
    "prometheusWireGuardMetricsEnabled": ("one set of metrics is served", (True,)),
    "kubeNodePortRanges": ("node ports have no rules of their own", ("['30000:32767']",)),
    "usageReportingEnabled": ("no usage is reported to anybody", (True, False)),
    "removeExternalRoutes": ("routes of other programs are never removed", (False,)),
    "sidecarAccelerationEnabled": ("there is no eBPF data plane", (False,)),
    "xdpEnabled": ("there is no XDP", (True, False)),
    "genericXDPEnabled": ("there is no XDP", (False,)),
    "logConnectionTransitions": ("answers have no log line of their own", ("Disabled",)),
    "nftablesFlowTableOffload": ("nothing is offloaded", ("Disabled",)),
    "bpfEnabled": ("there is no eBPF data plane", (False,)),
    "bpfConnectTimeLoadBalancingEnabled": ("there is no eBPF data plane", (True, False)),
    "istioAmbientMode": ("meshes are not followed", ("Disabled",)),
    "routeSource": ("routes come from blocks", ("CalicoIPAM",)),
    "routeSyncDisabled": ("routes are always programmed", (False,)),
    "ipv4NormalRoutePriority": ("routes have one metric", (1024,)),
    "ipv6NormalRoutePriority": ("routes have one metric", (1024,)),
    "wireguardEnabled": ("nothing is encrypted", (False,)),
    "wireguardEnabledV6": ("nothing is encrypted", (False,)),
    "wireguardHostEncryptionEnabled": ("nothing is encrypted", (False,)),
    "awsSrcDstCheck": ("AWS is not called", ("DoNothing",)),
    "localSubnetL2Reachability": ("neighbours are answered for as always", ("Disabled",)),
}

_INFORMATION: tuple[tuple[str, str], ...] = (
    (
        "acts with bpfEnabled only",
        "bpfOverlayHostSourceIP bpfDisableUnprivileged bpfJITHardening bpfLogLevel"
        " bpfConntrackLogLevel bpfConntrackMode bpfConntrackTimeouts bpfIPFragTimeout"
        " bpfLogFilters bpfCTLBLogFilter bpfDataIfacePattern bpfL3IfacePattern"
        " bpfConnectTimeLoadBalancing bpfHostNetworkedNATWithoutCTLB bpfExternalServiceMode"
        " bpfDSROptoutCIDRs bpfExtToServiceConnmark bpfKubeProxyIptablesCleanupEnabled"
        " bpfKubeProxyMinSyncPeriod bpfKubeProxyHealthzPort bpfPSNATPorts bpfMapSizeNATFrontend"
        " bpfMapSizeNATBackend bpfMapSizeNATAffinity bpfMapSizeRoute bpfMapSizeConntrack"
        " bpfMapSizePerCpuConntrack bpfMapSizeConntrackScaling bpfMapSizeConntrackCleanupQueue"
        " bpfMapSizeIPSets bpfMapSizeIfState bpfHostConntrackBypass"
        " bpfIPFragmentReassemblyEnabled bpfEnforceRPF bpfPolicyDebugEnabled"
        " bpfForceTrackPacketsFromIfaces bpfDisableGROForIfaces bpfExcludeCIDRsFromNAT"
        " bpfExportBufferSizeMB bpfRedirectToPeer bpfAttachType bpfProfiling"
        " bpfMaglevMaxEndpointsPerService bpfMaglevMaxServices cgroupV2Path",
    ),
    ("acts with logConnectionTransitions only", "logConnectionTransitionsPrefix"),
    (
        "acts with nftables flow tables only",
        "nftablesFlowTableDataIfacePattern",
    ),
    (
        "acts with wireguardEnabled only",
        "wireguardThreadingEnabled wireguardListeningPort wireguardListeningPortV6"
        " wireguardRoutingRulePriority wireguardInterfaceName wireguardInterfaceNameV6"
        " wireguardMTU wireguardMTUV6 wireguardKeepAlive routeTableRanges routeTableRange",
    ),
    ("acts with XDP only", "xdpRefreshInterval"),
    ("no usage is reported to anybody", "usageReportingInitialDelay usageReportingInterval"),
    ("a setting of Go's runtime", "goGCThreshold goMemoryLimitMB goMaxProcs"),
    ("a setting of Windows", "windowsManageFirewallRules"),
)


def _other_features(value: object, _spec: object) -> bool:
    """Whether the list names a feature that felix does not look up in it."""
    named = (part.partition("=") for part in str(value).split(","))
    return any(word and name.strip() != "ChecksumOffloadBroken" for name, _, word in named)


def _rows() -> dict[str, Row]:
    felix = Row(State.ENFORCED, "felix")
    rows = {f"spec.{name}": felix for name in ENFORCED.split()}
    for table, state in ((_STORED, State.STORED), (_INFORMATION, State.INFORMATION)):
        for why, names in table:
            rows |= {f"spec.{name}": Row(state, why) for name in names.split()}
    for name, (why, harmless) in _HARMLESS.items():
        rows[f"spec.{name}"] = Row(State.STORED, why, harmless)
    rows["spec.featureDetectOverride"] = Row(
        State.IN_PART, "felix: ChecksumOffloadBroken; others are detected", asks=_other_features
    )
    return rows


FELIX = _rows()
