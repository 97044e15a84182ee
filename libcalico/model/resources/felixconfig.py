"""The FelixConfiguration resource (docs/reference/data-model.md#felixconfiguration): every
parameter of Felix's that is stored.

libcalico/model/enforcement/table.py says which of them this release acts on. Their meaning and
defaults are Felix's (felix/config). The order of the fields is the order of the stored bytes.
Tested in tests/libcalico/test_golden.py.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import force_setattr

from libcalico.model.base import numorstring
from libcalico.model.base.base import Struct, always
from libcalico.model.base.meta import APIObject, Duration
from libcalico.model.resources.felix_values import (
    BPFConntrackTimeouts,
    HealthTimeoutOverride,
    ProtoPort,
    RouteTableRange,
)


class FelixConfigurationSpec(Struct, frozen=True):
    """Parameters; None or empty means: not set here."""

    nodeSelector: str | None = None
    useInternalDataplaneDriver: bool | None = None
    dataplaneDriver: str = ""
    dataplaneWatchdogTimeout: Duration | None = None
    ipv6Support: bool | None = None
    routeRefreshInterval: Duration | None = None
    interfaceRefreshInterval: Duration | None = None
    iptablesRefreshInterval: Duration | None = None
    iptablesPostWriteCheckInterval: Duration | None = None
    iptablesLockProbeInterval: Duration | None = None
    featureDetectOverride: str = ""
    featureGates: str = ""
    ipsetsRefreshInterval: Duration | None = None
    maxIpsetSize: int | None = None
    iptablesBackend: str | None = None
    xdpRefreshInterval: Duration | None = None
    netlinkTimeout: Duration | None = None
    metadataAddr: str = ""
    metadataPort: int | None = None
    openstackRegion: str = ""
    interfacePrefix: str = ""
    interfaceExclude: str = ""
    chainInsertMode: str = ""
    defaultEndpointToHostAction: str = ""
    iptablesFilterAllowAction: str = ""
    iptablesMangleAllowAction: str = ""
    iptablesFilterDenyAction: str = ""
    logPrefix: str = ""
    logActionRateLimit: str | None = None
    logActionRateLimitBurst: int | None = None
    logConnectionTransitions: str | None = None
    logConnectionTransitionsPrefix: str = ""
    logFilePath: str = ""
    logSeverityFile: str = ""
    logSeverityScreen: str = ""
    logSeveritySys: str = ""
    logDebugFilenameRegex: str = ""
    ipipEnabled: bool | None = None
    ipipMTU: int | None = None
    vxlanEnabled: bool | None = None
    vxlanMTU: int | None = None
    vxlanMTUV6: int | None = None
    vxlanPort: int | None = None
    vxlanVNI: int | None = None
    allowVXLANPacketsFromWorkloads: bool | None = None
    allowIPIPPacketsFromWorkloads: bool | None = None
    reportingInterval: Duration | None = None
    reportingTTL: Duration | None = None
    endpointReportingEnabled: bool | None = None
    endpointReportingDelay: Duration | None = None
    endpointStatusPathPrefix: str = ""
    iptablesMarkMask: int | None = None
    disableConntrackInvalidCheck: bool | None = None
    healthEnabled: bool | None = None
    healthHost: str | None = None
    healthPort: int | None = None
    healthTimeoutOverrides: list[HealthTimeoutOverride] = []
    prometheusMetricsEnabled: bool | None = None
    prometheusMetricsHost: str = ""
    prometheusMetricsPort: int | None = None
    prometheusGoMetricsEnabled: bool | None = None
    prometheusProcessMetricsEnabled: bool | None = None
    prometheusWireGuardMetricsEnabled: bool | None = None
    prometheusMetricsCAFile: str | None = None
    prometheusMetricsCertFile: str | None = None
    prometheusMetricsKeyFile: str | None = None
    prometheusMetricsClientAuth: str | None = None
    failsafeInboundHostPorts: list[ProtoPort] | None = None
    failsafeOutboundHostPorts: list[ProtoPort] | None = None
    kubeNodePortRanges: list[int | str] | None = None
    policySyncPathPrefix: str = ""
    usageReportingEnabled: bool | None = None
    usageReportingInitialDelay: Duration | None = None
    usageReportingInterval: Duration | None = None
    natPortRange: int | str | None = None
    natOutgoingAddress: str = ""
    natOutgoingExclusions: str | None = None
    deviceRouteSourceAddress: str = ""
    deviceRouteSourceAddressIPv6: str = ""
    deviceRouteProtocol: int | None = None
    removeExternalRoutes: bool | None = None
    programClusterRoutes: str | None = None
    ipForwarding: str = ""
    externalNodesList: list[str] | None = None
    debugMemoryProfilePath: str = ""
    debugDisableLogDropping: bool | None = None
    debugSimulateCalcGraphHangAfter: Duration | None = None
    debugSimulateDataplaneHangAfter: Duration | None = None
    debugSimulateDataplaneApplyDelay: Duration | None = None
    debugHost: str | None = None
    debugPort: int | None = None
    iptablesNATOutgoingInterfaceFilter: str = ""
    sidecarAccelerationEnabled: bool | None = None
    xdpEnabled: bool | None = None
    genericXDPEnabled: bool | None = None
    nftablesMode: str | None = None
    nftablesFlowTableOffload: str | None = None
    nftablesFlowTableDataIfacePattern: str = ""
    nftablesRefreshInterval: Duration | None = None
    nftablesFilterAllowAction: str = ""
    nftablesMangleAllowAction: str = ""
    nftablesFilterDenyAction: str = ""
    nftablesMarkMask: int | None = None
    bpfEnabled: bool | None = None
    bpfOverlayHostSourceIP: str | None = None
    bpfDisableUnprivileged: bool | None = None
    bpfJITHardening: str | None = None
    bpfLogLevel: str = always("")
    bpfConntrackLogLevel: str = ""
    bpfConntrackMode: str | None = None
    bpfConntrackTimeouts: BPFConntrackTimeouts | None = None
    bpfIPFragTimeout: Duration | None = None
    bpfLogFilters: dict[str, str] | None = None
    bpfCTLBLogFilter: str = ""
    bpfDataIfacePattern: str = ""
    bpfL3IfacePattern: str = ""
    bpfConnectTimeLoadBalancingEnabled: bool | None = None
    bpfConnectTimeLoadBalancing: str | None = None
    bpfHostNetworkedNATWithoutCTLB: str | None = None
    bpfExternalServiceMode: str = ""
    bpfDSROptoutCIDRs: list[str] | None = None
    bpfExtToServiceConnmark: int | None = None
    bpfKubeProxyIptablesCleanupEnabled: bool | None = None
    bpfKubeProxyMinSyncPeriod: Duration | None = None
    bpfKubeProxyHealthzPort: int | None = None
    bpfPSNATPorts: int | str | None = None
    bpfMapSizeNATFrontend: int | None = None
    bpfMapSizeNATBackend: int | None = None
    bpfMapSizeNATAffinity: int | None = None
    bpfMapSizeRoute: int | None = None
    bpfMapSizeConntrack: int | None = None
    bpfMapSizePerCpuConntrack: int | None = None
    bpfMapSizeConntrackScaling: str = ""
    bpfMapSizeConntrackCleanupQueue: int | None = None
    bpfMapSizeIPSets: int | None = None
    bpfMapSizeIfState: int | None = None
    bpfHostConntrackBypass: bool | None = None
    bpfIPFragmentReassemblyEnabled: bool | None = None
    bpfEnforceRPF: str = ""
    bpfPolicyDebugEnabled: bool | None = None
    bpfForceTrackPacketsFromIfaces: list[str] | None = None
    bpfDisableGROForIfaces: str = ""
    bpfExcludeCIDRsFromNAT: list[str] | None = None
    bpfExportBufferSizeMB: int | None = None
    istioAmbientMode: str | None = None
    istioDSCPMark: int | str | None = None
    cgroupV2Path: str = ""
    flowLogsPolicyEvaluationMode: str | None = None
    bpfRedirectToPeer: str = ""
    bpfAttachType: str | None = None
    flowLogsFlushInterval: Duration | None = None
    flowLogsCollectorDebugTrace: bool | None = None
    flowLogsGoldmaneServer: str | None = None
    flowLogsLocalReporter: str | None = None
    bpfProfiling: str = ""
    routeSource: str = ""
    routeTableRanges: list[RouteTableRange] | None = None
    routeTableRange: RouteTableRange | None = None
    routeSyncDisabled: bool | None = None
    ipv4NormalRoutePriority: int | None = None
    ipv4ElevatedRoutePriority: int | None = None
    ipv6NormalRoutePriority: int | None = None
    ipv6ElevatedRoutePriority: int | None = None
    liveMigrationRouteConvergenceTime: Duration | None = None
    wireguardEnabled: bool | None = None
    wireguardEnabledV6: bool | None = None
    wireguardThreadingEnabled: bool | None = None
    wireguardListeningPort: int | None = None
    wireguardListeningPortV6: int | None = None
    wireguardRoutingRulePriority: int | None = None
    wireguardInterfaceName: str = ""
    wireguardInterfaceNameV6: str = ""
    wireguardMTU: int | None = None
    wireguardMTUV6: int | None = None
    wireguardHostEncryptionEnabled: bool | None = None
    wireguardKeepAlive: Duration | None = None
    awsSrcDstCheck: str | None = None
    serviceLoopPrevention: str = ""
    workloadSourceSpoofing: str = ""
    mtuIfacePattern: str = ""
    floatingIPs: str | None = None
    localSubnetL2Reachability: str | None = None
    localSubnetL2ReachabilityRefreshInterval: Duration | None = None
    windowsManageFirewallRules: str | None = None
    goGCThreshold: int | None = None
    goMemoryLimitMB: int | None = None
    goMaxProcs: int | None = None
    requireMTUFile: bool | None = None
    bpfMaglevMaxEndpointsPerService: int | None = None
    bpfMaglevMaxServices: int | None = None

    def __post_init__(self) -> None:
        ranges = self.kubeNodePortRanges
        if ranges:
            canonical = [numorstring.port_or_as_is(port) for port in ranges]
            force_setattr(self, "kubeNodePortRanges", canonical)
        for name in ("natPortRange", "bpfPSNATPorts"):
            value = getattr(self, name)
            if value is not None:
                force_setattr(self, name, numorstring.port_or_as_is(value))

    def set_fields(self) -> dict[str, object]:
        """The parameters that are set, by their stored names, as plain values."""
        fields: dict[str, object] = msgspec.to_builtins(self)
        if not self.bpfLogLevel:
            del fields["bpfLogLevel"]
        return fields


class FelixConfiguration(APIObject, frozen=True, kw_only=True):
    """Felix's parameters: `default`, `node.<name>`, or any name with a `nodeSelector`."""

    kind: str = always("FelixConfiguration")
    spec: FelixConfigurationSpec = always(FelixConfigurationSpec())
