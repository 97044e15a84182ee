"""Rules of FelixConfiguration (docs/reference/data-model.md#felixconfiguration), mostly one table
by field.

Words are taken in any letter case where Felix takes them so. A field that stands in no
table here is checked by its type alone, as in Calico.
Tested in tests/libcalico/test_invalid_documents.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import get_type_hints

from libcalico.model.base import numorstring
from libcalico.model.base.meta import Duration
from libcalico.model.resources.felixconfig import (
    FelixConfiguration,
    FelixConfigurationSpec,
    HealthTimeoutOverride,
    ProtoPort,
    RouteTableRange,
)
from libcalico.model.validation.checks import INTERFACE, SINGLE_LABEL, Problems, indexed

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
"""In any letter case."""

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
    "programClusterRoutes": ("Enabled", "Disabled", "EnabledIPIPOnly", "EnabledNoEncapOnly"),
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

MAX_32, MAX_INT32, MAX_PRIORITY = 2**32 - 1, 2**31 - 1, 2**31 - 2
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
_FILTER_RULE = "must be 1 to 15 letters, digits, ':', '.', '_', '+' and '-'"
PATTERNS: dict[str, tuple[re.Pattern[str], str]] = {
    "featureDetectOverride": (
        re.compile(r"(\w+=(true|false|),)*(\w+=(true|false|))?"),
        "must be a list such as Feature=true,Other=false",
    ),
    "featureGates": (
        re.compile(r"(\w+=[^=,]+,)*(\w+=[^=]+)?"),
        "must be a list such as Gate=value,Other=value",
    ),
    "iptablesNATOutgoingInterfaceFilter": (INTERFACE_FILTER, _FILTER_RULE),
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
_TIMEOUT = re.compile(r"(([0-9]*(\.[0-9]*)?(ms|s|h|m|us)+)+|Auto)")
_REPORTER = re.compile(r"[a-zA-Z0-9_ -]+")
MAX_REGION = 63 - len("openstack-region-")
MAX_RANGES, MAX_TABLES, MAX_TABLE_RANGE = 7, 0xFFFF, 250


def check(config: FelixConfiguration, problems: Problems) -> None:
    """Check Felix's parameters."""
    _name(config, problems)
    spec = config.spec
    for name, words in WORDS.items():
        problems.word(f"spec.{name}", getattr(spec, name), words)
    for name, choices in CHOICES.items():
        problems.one_of(f"spec.{name}", getattr(spec, name), choices)
    for name, (low, high) in LIMITS.items():
        problems.limits(f"spec.{name}", getattr(spec, name), low, high)
    for name in EXPRESSIONS:
        problems.expression(f"spec.{name}", getattr(spec, name))
    for name, version in CIDRS.items():
        problems.cidrs(f"spec.{name}", getattr(spec, name) or (), version)
    for name, version in ADDRESSES.items():
        problems.address(f"spec.{name}", getattr(spec, name), version)
    for name, (pattern, rule) in PATTERNS.items():
        problems.pattern(f"spec.{name}", getattr(spec, name) or "", pattern, rule)
    for name in DURATIONS:
        value = getattr(spec, name)
        problems.duration(f"spec.{name}", value, negative=name in MAY_BE_NEGATIVE)
    _ports(spec, problems)
    _tables(spec, problems)
    _rest(spec, problems)


def _name(config: FelixConfiguration, problems: Problems) -> None:
    name, selector = config.metadata.name, config.spec.nodeSelector
    if name == "default" or name.startswith("node."):
        if selector:
            problems.add("spec.nodeSelector", selector, f"not allowed in the object named {name}")
    elif not selector:
        rule = "must be default or node.<name>, or spec.nodeSelector be set"
        problems.add("metadata.name", name, rule)
    if selector:
        problems.selector("spec.nodeSelector", selector)


def _ports(spec: FelixConfigurationSpec, problems: Problems) -> None:
    ranges = spec.kubeNodePortRanges or []
    problems.entries("spec.kubeNodePortRanges", ranges, MAX_RANGES)
    for where, port in indexed("spec.kubeNodePortRanges", ranges):
        _port(problems, where, port, named=False)
    for name in ("natPortRange", "bpfPSNATPorts"):
        value = getattr(spec, name)
        if value is not None:
            _port(problems, f"spec.{name}", value, named=True)
    for name in ("failsafeInboundHostPorts", "failsafeOutboundHostPorts"):
        _failsafe(problems, f"spec.{name}", getattr(spec, name) or ())


def _port(problems: Problems, field: str, port: int | str, *, named: bool) -> None:
    try:
        good = numorstring.port(port)
    except ValueError as problem:
        problems.add(field, port, str(problem))
        return
    if good == 0 or (isinstance(good, str) and good.startswith("0:")):
        problems.add(field, port, "must not be 0")
    elif not named and isinstance(good, str) and ":" not in good:
        problems.add(field, port, "must be a number or a range, not a name")


def _failsafe(problems: Problems, field: str, ports: Sequence[ProtoPort]) -> None:
    for where, port in indexed(field, ports):
        problems.word(f"{where}.protocol", port.protocol, ("TCP", "UDP", "SCTP"))
        problems.limits(f"{where}.port", port.port, 0, 65535)
        if port.net:
            problems.network(f"{where}.net", port.net, host_bits=True)


def _tables(spec: FelixConfigurationSpec, problems: Problems) -> None:
    ranges = spec.routeTableRanges
    if ranges is not None and spec.routeTableRange is not None:
        problems.add("spec.routeTableRange", "...", "not together with routeTableRanges")
    single = spec.routeTableRange
    if single is not None and not 1 <= single.min <= single.max <= MAX_TABLE_RANGE:
        value = f"{single.min}-{single.max}"
        problems.add("spec.routeTableRange", value, f"must lie in 1 to {MAX_TABLE_RANGE}")
    for where, one in indexed("spec.routeTableRanges", ranges or ()):
        _table_range(problems, where, one)
    tables = sum(max(0, one.max - one.min + 1) for one in ranges or ())
    if tables > MAX_TABLES:
        rule = f"must be at most {MAX_TABLES} tables altogether"
        problems.add("spec.routeTableRanges", f"{tables} tables", rule)


def _table_range(problems: Problems, where: str, one: RouteTableRange) -> None:
    if one.min < 1:
        problems.add(f"{where}.min", one.min, "must be at least 1")
    if one.min > one.max:
        problems.add(f"{where}.max", one.max, f"must not be below min, {one.min}")
    if one.max > MAX_32:
        problems.add(f"{where}.max", one.max, f"must be at most {MAX_32}")


def _rest(spec: FelixConfigurationSpec, problems: Problems) -> None:
    region = spec.openstackRegion
    if region and (len(region) > MAX_REGION or not SINGLE_LABEL.fullmatch(region)):
        rule = f"must be a DNS label of at most {MAX_REGION} characters"
        problems.add("spec.openstackRegion", region, rule)
    _reporters(problems, spec.healthTimeoutOverrides)
    for name in spec.bpfLogFilters or ():
        if not INTERFACE.fullmatch(name):
            problems.add(f"spec.bpfLogFilters[{name}]", name, "the key must be an interface's name")
    interfaces = spec.bpfForceTrackPacketsFromIfaces or ()
    for where, name in indexed("spec.bpfForceTrackPacketsFromIfaces", interfaces):
        if not INTERFACE_FILTER.fullmatch(name):
            problems.add(where, name, _FILTER_RULE)
    problems.dscp("spec.istioDSCPMark", spec.istioDSCPMark)
    timeouts = spec.bpfConntrackTimeouts
    for name in timeouts.__struct_fields__ if timeouts is not None else ():
        value = getattr(timeouts, name)
        if value is not None and not _TIMEOUT.fullmatch(value):
            rule = "must be a duration such as 60s, or Auto"
            problems.add(f"spec.bpfConntrackTimeouts.{name}", value, rule)


def _reporters(problems: Problems, overrides: Sequence[HealthTimeoutOverride]) -> None:
    for where, one in indexed("spec.healthTimeoutOverrides", overrides):
        if not _REPORTER.fullmatch(one.name):
            rule = "must be letters, digits, '_', '-' and spaces"
            problems.add(f"{where}.name", one.name, rule)
        problems.duration(f"{where}.timeout", one.timeout, negative=False)
