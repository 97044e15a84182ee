"""Calico's parameters that felix does not act on: names and defaults
(docs/reference/data-model.md#felixconfiguration).

Together with `PARAMETERS` this is every parameter there is. The table of fields
(libcalico/model/enforcement/felix.py) says why a parameter has no effect, and which of its values
ask for nothing. A parameter that becomes enforced leaves this table.
Tested in tests/felix/config/test_config_table.py.
"""

from __future__ import annotations

from dataclasses import dataclass

# Field of the FelixConfiguration, and the default that Calico has; `-` where it has none.
_FIELDS = """
    useInternalDataplaneDriver true; dataplaneDriver calico-iptables-plugin;
    iptablesPostWriteCheckInterval 5s; iptablesLockProbeInterval 50ms;
    featureGates -; xdpRefreshInterval 90s; netlinkTimeout 10s;
    metadataAddr 127.0.0.1; metadataPort 8775; interfaceExclude kube-ipvs0;
    logFilePath /var/log/calico/felix.log;
    logSeverityFile Info; logSeveritySys Info; logDebugFilenameRegex -;
    logConnectionTransitions Disabled; logConnectionTransitionsPrefix calico-response;
    prometheusGoMetricsEnabled true;
    prometheusWireGuardMetricsEnabled true; prometheusMetricsCAFile -;
    prometheusMetricsCertFile -; prometheusMetricsKeyFile -; prometheusMetricsClientAuth -;
    kubeNodePortRanges 30000:32767; policySyncPathPrefix -; usageReportingEnabled true;
    usageReportingInitialDelay 300s; usageReportingInterval 86400s;
    deviceRouteSourceAddress -; deviceRouteSourceAddressIPv6 -; deviceRouteProtocol 3;
    removeExternalRoutes true;
    debugMemoryProfilePath -; debugDisableLogDropping -; debugSimulateCalcGraphHangAfter -;
    debugSimulateDataplaneHangAfter -; debugSimulateDataplaneApplyDelay -; debugHost -;
    debugPort -; sidecarAccelerationEnabled false; xdpEnabled true; genericXDPEnabled false;
    nftablesFlowTableOffload -; nftablesFlowTableDataIfacePattern -;
    bpfEnabled false; bpfOverlayHostSourceIP -;
    bpfDisableUnprivileged -; bpfJITHardening -; bpfLogLevel Off; bpfConntrackLogLevel -;
    bpfConntrackMode -; bpfConntrackTimeouts -; bpfIPFragTimeout -; bpfLogFilters -;
    bpfCTLBLogFilter -;
    bpfDataIfacePattern ^((en|wl|ww|sl|ib)[Popsx].*|(eth|wlan|wwan|bond).*);
    bpfL3IfacePattern -; bpfConnectTimeLoadBalancingEnabled -;
    bpfConnectTimeLoadBalancing TCP; bpfHostNetworkedNATWithoutCTLB Enabled;
    bpfExternalServiceMode Tunnel; bpfDSROptoutCIDRs -; bpfExtToServiceConnmark -;
    bpfKubeProxyIptablesCleanupEnabled true; bpfKubeProxyMinSyncPeriod -;
    bpfKubeProxyHealthzPort -; bpfPSNATPorts -; bpfMapSizeNATFrontend 65536;
    bpfMapSizeNATBackend 262144; bpfMapSizeNATAffinity -; bpfMapSizeRoute 262144;
    bpfMapSizeConntrack 512000; bpfMapSizePerCpuConntrack -; bpfMapSizeConntrackScaling -;
    bpfMapSizeConntrackCleanupQueue -; bpfMapSizeIPSets 1048576; bpfMapSizeIfState -;
    bpfHostConntrackBypass -; bpfIPFragmentReassemblyEnabled -; bpfEnforceRPF Loose;
    bpfPolicyDebugEnabled -; bpfForceTrackPacketsFromIfaces -; bpfDisableGROForIfaces -;
    bpfExcludeCIDRsFromNAT -; bpfExportBufferSizeMB -; istioAmbientMode -; istioDSCPMark -;
    cgroupV2Path -; bpfRedirectToPeer -; bpfAttachType -;
    flowLogsCollectorDebugTrace -; bpfProfiling -; routeSource CalicoIPAM;
    routeTableRanges -; routeTableRange -; routeSyncDisabled false;
    ipv4NormalRoutePriority 1024; ipv4ElevatedRoutePriority 512;
    ipv6NormalRoutePriority 1024; ipv6ElevatedRoutePriority 512;
    liveMigrationRouteConvergenceTime -; wireguardEnabled false; wireguardEnabledV6 false;
    wireguardThreadingEnabled -; wireguardListeningPort 51820;
    wireguardListeningPortV6 51821; wireguardRoutingRulePriority 99;
    wireguardInterfaceName wireguard.cali; wireguardInterfaceNameV6 wg-v6.cali;
    wireguardMTU 0; wireguardMTUV6 0; wireguardHostEncryptionEnabled false;
    wireguardKeepAlive 0; awsSrcDstCheck DoNothing;
    localSubnetL2Reachability -;
    localSubnetL2ReachabilityRefreshInterval -; windowsManageFirewallRules -;
    goGCThreshold 40; goMemoryLimitMB -1; goMaxProcs -1;
    bpfMaglevMaxEndpointsPerService -; bpfMaglevMaxServices -;
"""
# Where the name in environment and file is not the field's.
_NAMES = {
    "iptablesPostWriteCheckInterval": "IptablesPostWriteCheckIntervalSecs",
    "iptablesLockProbeInterval": "IptablesLockProbeIntervalMillis",
    "netlinkTimeout": "NetlinkTimeoutSecs",
    "usageReportingInitialDelay": "UsageReportingInitialDelaySecs",
    "usageReportingInterval": "UsageReportingIntervalSecs",
}
DATASTORE = {
    "DatastoreType": "etcdv3",
    "EtcdAddr": "127.0.0.1:2379",
    "EtcdScheme": "http",
    "EtcdEndpoints": "",
    "EtcdKeyFile": "",
    "EtcdCertFile": "",
    "EtcdCaFile": "",
}
"""Parameters of environment and file that the datastore client reads."""

CLUSTER = ("CalicoVersion", "ClusterGUID", "ClusterType")
"""What Calico's felix takes from ClusterInformation; here nothing depends on it."""

TYPHA = {
    "TyphaAddr": "",
    "TyphaK8sServiceName": "",
    "TyphaK8sNamespace": "kube-system",
    "TyphaReadTimeout": "",
    "TyphaWriteTimeout": "",
    "TyphaCN": "",
    "TyphaURISAN": "",
}
"""Parameters of environment and file that reach a Typha: every felix reads the datastore."""


@dataclass(frozen=True, slots=True)
class Other:
    """One parameter that is not acted on; `default` as a text, empty where there is none."""

    name: str
    field: str
    default: str


def _others() -> tuple[Other, ...]:
    others = []
    for entry in filter(None, " ".join(_FIELDS.split()).split(";")):
        field, _, default = entry.strip().partition(" ")
        name = _NAMES.get(field, field[0].upper() + field[1:])
        others.append(Other(name, field, "" if default == "-" else default))
    return tuple(others)


OTHERS = _others()
ELSEWHERE = frozenset(name.lower() for name in (*DATASTORE, *CLUSTER))
FIELD_OF = {other.name.lower(): other.field for other in OTHERS}
"""The field of a parameter by its name in environment and file, in lower case."""
