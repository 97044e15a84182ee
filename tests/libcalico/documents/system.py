"""FelixConfiguration, KubeControllersConfiguration, ClusterInformation and what is alike."""

# A case is a line, however long.
# ruff: noqa: E501
from __future__ import annotations

from tests.libcalico.documents import Refused, Taken, document

DEFAULT = "name: default"
HEP = "controllers: {node: {hostEndpoint: {"
T0 = "spec.controllers.node.hostEndpoint.templates[0]"


def _felix(id_: str, spec: str, path: str, rule: str, metadata: str = DEFAULT) -> Refused:
    return Refused(f"felix-{id_}", document("FelixConfiguration", spec, metadata), path, rule)


def _word(field: str, value: str, rule: str) -> Refused:
    return _felix(f"{field}-word", f"{field}: {value}", f"spec.{field}", rule)


def _kcc(id_: str, spec: str, path: str, rule: str, metadata: str = DEFAULT) -> Refused:
    text = document("KubeControllersConfiguration", spec, metadata)
    return Refused(f"controllers-{id_}", text, path, rule)


def _template(id_: str, template: str, path: str, rule: str) -> Refused:
    return _kcc(f"template-{id_}", f"{HEP}templates: [{template}]}}}}}}", path, rule)


REFUSED = [
    _felix("name", "", "metadata.name", "node.<name>", "name: rack1"),
    _felix("selector-of-default", "nodeSelector: all()", "spec.nodeSelector", "default"),
    _felix("selector-of-node", "nodeSelector: all()", "spec.nodeSelector", "node.a", "name: node.a"),
    _felix("selector", "nodeSelector: 'a in'", "spec.nodeSelector", "selector", "name: rack1"),
    _felix("unknown", "ipv6support: true", "spec.ipv6support", "no such field"),
    _felix("interval", "reportingInterval: 30", "spec.reportingInterval", "text"),
    _felix("interval-text", "reportingInterval: half a minute", "spec.reportingInterval", "duration"),
    _felix("interval-negative", "iptablesRefreshInterval: -1s", "spec.iptablesRefreshInterval", "negative"),
    _felix("boolean", "ipv6Support: 'true'", "spec.ipv6Support", "true or false"),
    _felix("integer", "vxlanMTU: 1450.5", "spec.vxlanMTU", "whole number"),
    _word("logSeverityScreen", "Verbose", "Warning"),
    _word("chainInsertMode", "Prepend", "Append"),
    _word("defaultEndpointToHostAction", "Deny", "Return"),
    _word("iptablesBackend", "nftables", "NFT"),
    _word("iptablesFilterAllowAction", "Drop", "Return"),
    _word("iptablesFilterDenyAction", "Deny", "Reject"),
    _word("bpfLogLevel", "Loud", "Debug"),
    _word("routeSource", "Kernel", "WorkloadIPs"),
    _word("nftablesMode", "auto", "Auto"),
    _word("natOutgoingExclusions", "HostIPs", "IPPoolsAndHostIPs"),
    _word("awsSrcDstCheck", "Disabled", "DoNothing"),
    _word("serviceLoopPrevention", "Deny", "Reject"),
    _word("workloadSourceSpoofing", "All", "Any"),
    _word("floatingIPs", "'On'", "Enabled"),
    _word("programClusterRoutes", "Always", "EnabledIPIPOnly"),
    _word("ipForwarding", "'true'", "Disabled"),
    _felix("mark", "iptablesMarkMask: 4294967296", "spec.iptablesMarkMask", "4294967295"),
    _felix("priority", "ipv4NormalRoutePriority: 0", "spec.ipv4NormalRoutePriority", "1 to"),
    _felix("wireguard-port", "wireguardListeningPort: 0", "spec.wireguardListeningPort", "65535"),
    _felix("wireguard-rule", "wireguardRoutingRulePriority: 32766", "spec.wireguardRoutingRulePriority", "32765"),
    _felix("wireguard-name", "wireguardInterfaceName: 'wire guard'", "spec.wireguardInterfaceName", "interface"),
    _felix("gc", "goGCThreshold: -2", "spec.goGCThreshold", "-1"),
    _felix("maglev", "bpfMaglevMaxServices: 3001", "spec.bpfMaglevMaxServices", "3000"),
    _felix("pattern", "mtuIfacePattern: '^(eth'", "spec.mtuIfacePattern", "regular expression"),
    _felix("pattern-lookahead", "bpfDataIfacePattern: '(?!eth)'", "spec.bpfDataIfacePattern", "look-around"),
    _felix("filter", "iptablesNATOutgoingInterfaceFilter: 'eth*'", "spec.iptablesNATOutgoingInterfaceFilter", "letters"),
    _felix("rate", "logActionRateLimit: 0/second", "spec.logActionRateLimit", "second"),
    _felix("rate-unit", "logActionRateLimit: 5/week", "spec.logActionRateLimit", "day"),
    _felix("burst", "logActionRateLimitBurst: 10000", "spec.logActionRateLimitBurst", "9999"),
    _felix("transitions", "logConnectionTransitions: All", "spec.logConnectionTransitions", "Disabled"),
    _felix("transitions-prefix", "logConnectionTransitionsPrefix: 'a\"b'", "spec.logConnectionTransitionsPrefix", "letters"),
    _felix("prefix", "logPrefix: 'calico=packet'", "spec.logPrefix", "letters"),
    _felix("features", "featureDetectOverride: 'A=yes'", "spec.featureDetectOverride", "Feature=true"),
    _felix("metrics-host", "prometheusMetricsHost: 'a host'", "spec.prometheusMetricsHost", "host name"),
    _felix("node-ports", "kubeNodePortRanges: ['90:80']", "spec.kubeNodePortRanges[0]", "min:max"),
    _felix("node-port-name", "kubeNodePortRanges: [http]", "spec.kubeNodePortRanges[0]", "not a name"),
    _felix("node-ports-many", "kubeNodePortRanges: [1, 2, 3, 4, 5, 6, 7, 8]", "spec.kubeNodePortRanges", "at most 7"),
    _felix("nat-port", "natPortRange: 0", "spec.natPortRange", "not be 0"),
    _felix("nat-address", "natOutgoingAddress: 'fd00::1'", "spec.natOutgoingAddress", "IPv4"),
    _felix("source-address", "deviceRouteSourceAddressIPv6: 10.0.0.1", "spec.deviceRouteSourceAddressIPv6", "IPv6"),
    _felix("failsafe", "failsafeInboundHostPorts: [{protocol: ICMP, port: 1}]", "spec.failsafeInboundHostPorts[0].protocol", "SCTP"),
    _felix("failsafe-port", "failsafeOutboundHostPorts: [{protocol: TCP, port: 65536}]", "spec.failsafeOutboundHostPorts[0].port", "65535"),
    _felix("failsafe-net", "failsafeInboundHostPorts: [{protocol: TCP, port: 1, net: x}]", "spec.failsafeInboundHostPorts[0].net", "CIDR"),
    _felix("failsafe-text", "failsafeInboundHostPorts: 'tcp:22'", "spec.failsafeInboundHostPorts", "list"),
    _felix("external-nodes", "externalNodesList: ['fd00::/8']", "spec.externalNodesList[0]", "IPv4"),
    _felix("tables", "routeTableRange: {min: 0, max: 250}", "spec.routeTableRange", "1 to 250"),
    _felix("tables-high", "routeTableRange: {min: 1, max: 251}", "spec.routeTableRange", "1 to 250"),
    _felix("table-ranges", "routeTableRanges: [{min: 9, max: 1}]", "spec.routeTableRanges[0].max", "below min"),
    _felix("table-ranges-0", "routeTableRanges: [{min: 0, max: 1}]", "spec.routeTableRanges[0].min", "at least 1"),
    _felix("table-ranges-many", "routeTableRanges: [{min: 1, max: 65536}]", "spec.routeTableRanges", "65535 tables"),
    _felix("tables-twice", "routeTableRange: {min: 1, max: 2}, routeTableRanges: [{min: 1, max: 2}]", "spec.routeTableRange", "routeTableRanges"),
    _felix("region", "openstackRegion: Region_1", "spec.openstackRegion", "DNS label"),
    _felix("health", "healthTimeoutOverrides: [{name: 'a/b', timeout: 1s}]", "spec.healthTimeoutOverrides[0].name", "letters"),
    _felix("health-negative", "healthTimeoutOverrides: [{name: a, timeout: -1s}]", "spec.healthTimeoutOverrides[0].timeout", "negative"),
    _felix("log-filters", "bpfLogFilters: {'a b': tcp}", "spec.bpfLogFilters[a b]", "interface"),
    _felix("timeouts", "bpfConntrackTimeouts: {tcpSynSent: never}", "spec.bpfConntrackTimeouts.tcpSynSent", "Auto"),
    _felix("dscp", "istioDSCPMark: 99", "spec.istioDSCPMark", "0 to 63"),
    _kcc("name", "", "metadata.name", "default", "name: other"),
    _kcc("level", "logSeverityScreen: Trace", "spec.logSeverityScreen", "Panic"),
    _kcc("health", "healthChecks: 'on'", "spec.healthChecks", "Enabled"),
    _kcc("compaction", "etcdV3CompactionPeriod: soon", "spec.etcdV3CompactionPeriod", "duration"),
    _kcc("metrics", "prometheusMetricsPort: 65536", "spec.prometheusMetricsPort", "65535"),
    _kcc("debug", "debugProfilePort: -1", "spec.debugProfilePort", "65535"),
    _kcc("period", "controllers: {policy: {reconcilerPeriod: 5}}", "spec.controllers.policy.reconcilerPeriod", "text"),
    _kcc("period-text", "controllers: {namespace: {reconcilerPeriod: x}}", "spec.controllers.namespace.reconcilerPeriod", "duration"),
    _kcc("labels", "controllers: {node: {syncLabels: true}}", "spec.controllers.node.syncLabels", "text"),
    _kcc("grace", "controllers: {node: {leakGracePeriod: 1 hour}}", "spec.controllers.node.leakGracePeriod", "duration"),
    _kcc("create", f"{HEP}autoCreate: 'Yes'}}}}}}", "spec.controllers.node.hostEndpoint.autoCreate", "Enabled"),
    _kcc("create-default", f"{HEP}createDefaultHostEndpoint: Never}}}}}}", "spec.controllers.node.hostEndpoint.createDefaultHostEndpoint", "Disabled"),
    _kcc("services", "controllers: {loadBalancer: {assignIPs: None}}", "spec.controllers.loadBalancer.assignIPs", "AllServices"),
    _kcc("migration", "controllers: {migration: {policyNameMigrator: 'no'}}", "spec.controllers.migration.policyNameMigrator", "Enabled"),
    _kcc("unknown", "controllers: {pods: {}}", "spec.controllers.pods", "no such field"),
    _template("name", "{interfacePattern: eth.*}", f"{T0}.generateName", "needs a name"),
    _template("name-case", "{generateName: A, interfacePattern: eth}", f"{T0}.generateName", "lower-case"),
    _template("which", "{generateName: a}", T0, "which interfaces"),
    _template("pattern", "{generateName: a, interfacePattern: '*eth'}", f"{T0}.interfacePattern", "regular expression"),
    _template("cidr", "{generateName: a, interfaceCIDRs: [x]}", f"{T0}.interfaceCIDRs[0]", "CIDR"),
    _template("label", "{generateName: a, interfacePattern: e, labels: {a: '-'}}", f"{T0}.labels[a]", "63"),
    _template("selector", "{generateName: a, interfacePattern: e, nodeSelector: x}", f"{T0}.nodeSelector", "selector"),
    _template("twice", "{generateName: a, interfacePattern: e}, {generateName: a, interfacePattern: f}", T0.replace("[0]", "[1].generateName"), "has this name"),
    Refused("information-name", document("ClusterInformation", "clusterGUID: a"), "metadata.name", "default"),
    Refused("information-ready", document("ClusterInformation", "datastoreReady: 1", DEFAULT), "spec.datastoreReady", "true or false"),
    Refused("migration-selector", document("LiveMigration", "target: {selector: 'a ='}"), "spec.target.selector", "selector"),
    Refused("migration-source", document("LiveMigration", "source: a"), "spec.source", "mapping"),
    Refused("metadata-labels", document("ClusterInformation", "", "name: default, labels: [a]"), "metadata.labels", "mapping"),
    Refused("metadata-unknown", document("ClusterInformation", "", "name: default, lables: {}"), "metadata.lables", "no such field"),
    Refused("top-unknown", document("ClusterInformation", "", DEFAULT, "extra: 1"), "extra", "no such field"),
]  # fmt: skip


def _good_felix(id_: str, spec: str, metadata: str = DEFAULT) -> Taken:
    return Taken(f"felix-{id_}", document("FelixConfiguration", spec, metadata))


def _good_kcc(id_: str, spec: str) -> Taken:
    return Taken(f"controllers-{id_}", document("KubeControllersConfiguration", spec, DEFAULT))


TAKEN = [
    _good_felix("empty", ""),
    _good_felix("of-a-node", "ipv6Support: false", "name: node.a.b"),
    _good_felix("of-some-nodes", "nodeSelector: has(rack)", "name: rack1"),
    _good_felix("case", "logSeverityScreen: dEBUG, chainInsertMode: insert, iptablesBackend: nft, bpfLogLevel: 'off'"),
    _good_felix("zero", "iptablesRefreshInterval: 0s, ipipMTU: 0, maxIpsetSize: 0, bpfLogLevel: ''"),
    _good_felix("watchdog", "dataplaneWatchdogTimeout: -1s"),
    _good_felix("fractions", "reportingInterval: 1.5s, netlinkTimeout: 1h2m3s"),
    _good_felix("patterns", "mtuIfacePattern: '^((en|wl)[Pcops].*|[[:alpha:]]+\\d*)', bpfL3IfacePattern: '(?i)WG'"),
    _good_felix("ports", "kubeNodePortRanges: ['30000:32767', 80, '8080'], natPortRange: '32768:65535'"),
    _good_felix("failsafe", "failsafeInboundHostPorts: [{protocol: tcp, port: 22, net: 10.0.0.1/8}], failsafeOutboundHostPorts: []"),
    _good_felix("tables", "routeTableRanges: [{min: 1, max: 250}, {min: 1000, max: 2000}]"),
    _good_felix("features", "featureDetectOverride: 'ChecksumOffloadBroken=true,MASQFullyRandom='"),
    _good_felix("rate", "logActionRateLimit: 9999/day, logPrefix: '%t %p: a/b_c-d'"),
    _good_felix("transitions", "logConnectionTransitions: FirstResponseAfterLog, logConnectionTransitionsPrefix: calico-response"),
    _good_felix("timeouts", "bpfConntrackTimeouts: {tcpSynSent: 20s, tcpFinsSeen: Auto, udpTimeout: 1m0.5s}"),
    _good_felix("dscp", "istioDSCPMark: af43"),
    _good_felix("external-nodes", "externalNodesList: [10.0.0.1, 10.0.0.7/8]"),
    _good_kcc("empty", ""),
    _good_kcc("all", "prometheusMetricsPort: 0, etcdV3CompactionPeriod: 0s, controllers: {node: {syncLabels: Disabled}, policy:, loadBalancer: {}}"),
    _good_kcc("template", f"{HEP}templates: [{{generateName: a.b, interfaceCIDRs: [10.0.0.1/8], annotations: {{a/b: ''}}}}]}}}}}}"),
    Taken("information", document("ClusterInformation", "clusterType: 'k8s,bgp'", DEFAULT)),
    Taken("migration", document("LiveMigration", "source: {workload: {hostname: a}}, target: {selector: has(a)}")),
]  # fmt: skip
