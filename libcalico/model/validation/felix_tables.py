"""Tables by field: the rules of single parameters of a FelixConfiguration
(docs/reference/data-model.md#felixconfiguration).

A field that stands in no table is checked by its type alone, as in Calico. The validator
(libcalico/model/validation/felix.py) and the definitions (libcalico/crds/parameters.py) read them.
Tested in tests/libcalico/test_invalid_documents.py.
"""

from __future__ import annotations

import re
from typing import get_type_hints

from libcalico.model.base.meta import Duration
from libcalico.model.resources.felixconfig import FelixConfigurationSpec
from libcalico.model.validation.checks import CLUSTER_ROUTES, INTERFACE

LEVELS = ("Trace", "Debug", "Info", "Warning", "Error", "Fatal")
SWITCH = ("Enabled", "Disabled")
ACCEPT, DENY = ("Accept", "Return"), ("Drop", "Reject")

WORDS: dict[str, tuple[str, ...]] = {
    "bpfEnforceRPF": ("Disabled", "Strict", "Loose"),
    "bpfExternalServiceMode": ("Tunnel", "DSR"),
    "bpfLogLevel": ("Off", "Info", "Debug"),
    "bpfMapSizeConntrackScaling": ("Disabled", "DoubleIfFull"),
    "chainInsertMode": ("Insert", "Append"),
    "defaultEndpointToHostAction": ("Drop", "Accept", "Return"),
    "iptablesBackend": ("Auto", "Legacy", "NFT"),
    "iptablesFilterAllowAction": ACCEPT,
    "iptablesFilterDenyAction": DENY,
    "iptablesMangleAllowAction": ACCEPT,
    "logSeverityFile": LEVELS,
    "logSeverityScreen": LEVELS,
    "logSeveritySys": LEVELS,
    "nftablesFilterAllowAction": ACCEPT,
    "nftablesFilterDenyAction": DENY,
    "nftablesMangleAllowAction": ACCEPT,
    "routeSource": ("WorkloadIPs", "CalicoIPAM"),
}
"""Words in any letter case, where Felix takes them so."""

CHOICES: dict[str, tuple[str, ...]] = {
    "awsSrcDstCheck": ("DoNothing", "Enable", "Disable"),
    "bpfAttachType": ("TC", "TCX", "Netkit"),
    "bpfConnectTimeLoadBalancing": ("TCP", "Enabled", "Disabled"),
    "bpfConntrackLogLevel": ("Off", "Debug"),
    "bpfConntrackMode": ("Auto", "Userspace", "BPFProgram"),
    "bpfHostNetworkedNATWithoutCTLB": SWITCH,
    "bpfJITHardening": ("Auto", "Strict"),
    "bpfOverlayHostSourceIP": ("TunnelAddress", "HostAddress"),
    "bpfProfiling": SWITCH,
    "bpfRedirectToPeer": SWITCH,
    "floatingIPs": SWITCH,
    "flowLogsLocalReporter": SWITCH,
    "flowLogsPolicyEvaluationMode": ("None", "Continuous"),
    "ipForwarding": SWITCH,
    "istioAmbientMode": SWITCH,
    "localSubnetL2Reachability": ("Disabled", "PodsAndLoadBalancers"),
    "logConnectionTransitions": ("Disabled", "FirstResponseAfterLog"),
    "natOutgoingExclusions": ("IPPoolsOnly", "IPPoolsAndHostIPs"),
    "nftablesFlowTableOffload": ("All", "Disabled"),
    "nftablesMode": ("Disabled", "Enabled", "Auto"),
    "programClusterRoutes": CLUSTER_ROUTES,
    "prometheusMetricsClientAuth": (
        "RequireAndVerifyClientCert",
        "RequireAnyClientCert",
        "VerifyClientCertIfGiven",
        "NoClientCert",
    ),
    "serviceLoopPrevention": ("Drop", "Reject", "Disabled"),
    "windowsManageFirewallRules": SWITCH,
    "workloadSourceSpoofing": ("Disabled", "Any"),
}

MAX_32, MAX_PRIORITY = 2**32 - 1, 2**31 - 2
LIMITS: dict[str, tuple[int, int]] = {
    "bpfExtToServiceConnmark": (0, MAX_32),
    "bpfKubeProxyHealthzPort": (0, 65535),
    "bpfMaglevMaxEndpointsPerService": (1, 3000),
    "bpfMaglevMaxServices": (1, 3000),
    "bpfMapSizeConntrackCleanupQueue": (1, 2**63 - 1),
    "debugPort": (0, 65535),
    "goGCThreshold": (-1, 2**63 - 1),
    "goMaxProcs": (-1, 2**63 - 1),
    "goMemoryLimitMB": (-1, 2**63 - 1),
    "ipv4ElevatedRoutePriority": (1, MAX_PRIORITY),
    "ipv4NormalRoutePriority": (1, MAX_PRIORITY),
    "ipv6ElevatedRoutePriority": (1, MAX_PRIORITY),
    "ipv6NormalRoutePriority": (1, MAX_PRIORITY),
    "iptablesMarkMask": (0, MAX_32),
    "logActionRateLimitBurst": (0, 9999),
    "nftablesMarkMask": (0, MAX_32),
    "wireguardListeningPort": (1, 65535),
    "wireguardListeningPortV6": (1, 65535),
    "wireguardRoutingRulePriority": (1, 32765),
}

EXPRESSIONS = (
    "bpfDataIfacePattern",
    "bpfDisableGROForIfaces",
    "bpfL3IfacePattern",
    "logDebugFilenameRegex",
    "mtuIfacePattern",
    "nftablesFlowTableDataIfacePattern",
)
CIDRS = {"bpfDSROptoutCIDRs": 0, "bpfExcludeCIDRsFromNAT": 0, "externalNodesList": 4}
ADDRESSES = {
    "natOutgoingAddress": 4,
    "deviceRouteSourceAddress": 4,
    "deviceRouteSourceAddressIPv6": 6,
}
MAY_BE_NEGATIVE = frozenset(
    {
        "dataplaneWatchdogTimeout",
        "nftablesRefreshInterval",
        "localSubnetL2ReachabilityRefreshInterval",
    }
)

DURATIONS = tuple(
    name
    for name, type_ in get_type_hints(FelixConfigurationSpec, include_extras=True).items()
    if type_ in (Duration, Duration | None)
)

INTERFACE_FILTER = re.compile(r"[a-zA-Z0-9:._+-]{1,15}")
INTERFACE_FILTER_RULE = "must be 1 to 15 letters, digits, ':', '.', '_', '+' and '-'"
PATTERNS: dict[str, tuple[re.Pattern[str], str]] = {
    "featureDetectOverride": (
        re.compile(r"(\w+=(true|false|),)*(\w+=(true|false|))?"),
        "must be a list such as Feature=true,Other=false",
    ),
    "featureGates": (
        re.compile(r"(\w+=[^=,]+,)*(\w+=[^=]+)?"),
        "must be a list such as Gate=value,Other=value",
    ),
    "iptablesNATOutgoingInterfaceFilter": (INTERFACE_FILTER, INTERFACE_FILTER_RULE),
    "logActionRateLimit": (
        re.compile(r"[1-9][0-9]{0,3}/(second|minute|hour|day)"),
        "must be <1-9999>/<second, minute, hour or day>",
    ),
    "logPrefix": (
        re.compile(r"[a-zA-Z0-9%: /_-]*"),
        "must be letters, digits, '%', ':', ' ', '/', '_' and '-'",
    ),
    "logConnectionTransitionsPrefix": (
        re.compile(r"[a-zA-Z0-9%: /_-]*"),
        "must be letters, digits, '%', ':', ' ', '/', '_' and '-'",
    ),
    "prometheusMetricsHost": (
        re.compile(r"[a-zA-Z0-9:._+-]{1,64}"),
        "must be an address or a host name of at most 64 characters",
    ),
    "wireguardInterfaceName": (INTERFACE, "must be an interface's name"),
    "wireguardInterfaceNameV6": (INTERFACE, "must be an interface's name"),
}
