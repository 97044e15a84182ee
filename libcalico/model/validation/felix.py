"""Rules of FelixConfiguration (docs/reference/data-model.md#felixconfiguration).

The rules of single parameters are the tables of libcalico/model/validation/felix_tables.py.
Tested in tests/libcalico/test_invalid_documents.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from libcalico.model.resources.felix_values import HealthTimeoutOverride, ProtoPort, RouteTableRange
from libcalico.model.resources.felixconfig import FelixConfiguration, FelixConfigurationSpec
from libcalico.model.validation.checks import INTERFACE, Problems, indexed
from libcalico.model.validation.felix_tables import (
    ADDRESSES,
    CHOICES,
    CIDRS,
    DURATIONS,
    EXPRESSIONS,
    INTERFACE_FILTER,
    INTERFACE_FILTER_RULE,
    LIMITS,
    MAX_32,
    MAY_BE_NEGATIVE,
    PATTERNS,
    WORDS,
)
from libcalico.model.validation.kubernetes_names import SINGLE_LABEL

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
    canonical = problems.port(field, port)
    if not named and isinstance(canonical, str) and ":" not in canonical:
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
    for where, table_range in indexed("spec.routeTableRanges", ranges or ()):
        _table_range(problems, where, table_range)
    tables = sum(max(0, table_range.max - table_range.min + 1) for table_range in ranges or ())
    if tables > MAX_TABLES:
        rule = f"must be at most {MAX_TABLES} tables altogether"
        problems.add("spec.routeTableRanges", f"{tables} tables", rule)


def _table_range(problems: Problems, where: str, table_range: RouteTableRange) -> None:
    if table_range.min < 1:
        problems.add(f"{where}.min", table_range.min, "must be at least 1")
    if table_range.min > table_range.max:
        problems.add(f"{where}.max", table_range.max, f"must not be below min, {table_range.min}")
    if table_range.max > MAX_32:
        problems.add(f"{where}.max", table_range.max, f"must be at most {MAX_32}")


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
            problems.add(where, name, INTERFACE_FILTER_RULE)
    problems.dscp("spec.istioDSCPMark", spec.istioDSCPMark)
    timeouts = spec.bpfConntrackTimeouts
    for name in timeouts.__struct_fields__ if timeouts is not None else ():
        value = getattr(timeouts, name)
        if value is not None and not _TIMEOUT.fullmatch(value):
            rule = "must be a duration such as 60s, or Auto"
            problems.add(f"spec.bpfConntrackTimeouts.{name}", value, rule)


def _reporters(problems: Problems, overrides: Sequence[HealthTimeoutOverride]) -> None:
    for where, override in indexed("spec.healthTimeoutOverrides", overrides):
        if not _REPORTER.fullmatch(override.name):
            rule = "must be letters, digits, '_', '-' and spaces"
            problems.add(f"{where}.name", override.name, rule)
        problems.duration(f"{where}.timeout", override.timeout, negative=False)
