"""Rules of WorkloadEndpoint and HostEndpoint (docs/reference/data-model.md#workloadendpoint,
#hostendpoint, #endpoint-names).

Tested in tests/libcalico/test_validate.py and tests/libcalico/test_invalid_documents.py.
"""

from __future__ import annotations

from libcalico import names
from libcalico.errors import InvalidValue
from libcalico.model.resources.endpoint import WorkloadEndpoint, WorkloadEndpointSpec
from libcalico.model.resources.hostendpoint import HostEndpoint
from libcalico.model.validation.checks import CONTAINER_ID, INTERFACE, Problems, indexed
from libcalico.model.validation.network_values import address_of

PORT_PROTOCOLS = ("TCP", "UDP", "SCTP", 6, 17, 132)
INTERFACE_RULE = "must be 1 to 15 letters, digits, '_', '.' and '-'"


def check(endpoint: WorkloadEndpoint, problems: Problems) -> None:
    """Check an endpoint."""
    spec = endpoint.spec
    for field in ("orchestrator", "workload", "node", "pod", "endpoint", "serviceAccountName"):
        problems.name(f"spec.{field}", getattr(spec, field))
    rule = "must be letters, digits and inner '-'"
    problems.pattern("spec.containerID", spec.containerID, CONTAINER_ID, rule)
    _check_name(endpoint, problems)
    _check_addresses(spec, problems)
    for where, profile in indexed("spec.profiles", spec.profiles):
        problems.name(where, profile)
    if not INTERFACE.fullmatch(spec.interfaceName):
        problems.add("spec.interfaceName", spec.interfaceName, INTERFACE_RULE)
    problems.mac("spec.mac", spec.mac)
    _check_ports(spec, problems)
    if spec.qosControls is not None:
        problems.dscp("spec.qosControls.dscp", spec.qosControls.dscp)


def check_host(endpoint: HostEndpoint, problems: Problems) -> None:
    """Check a host endpoint."""
    spec = endpoint.spec
    problems.name("spec.node", spec.node, "must name the node")
    if not spec.interfaceName and not spec.expectedIPs:
        rule = "interfaceName or expectedIPs must say which interface"
        problems.add("spec.interfaceName", "", rule)
    if spec.interfaceName != "*":
        rule = f"{INTERFACE_RULE}, or * for all"
        problems.pattern("spec.interfaceName", spec.interfaceName, INTERFACE, rule)
    for where, text in indexed("spec.expectedIPs", spec.expectedIPs):
        if not text:
            problems.add(where, text, "must be an IP address")
        problems.address(where, text)
    for where, profile in indexed("spec.profiles", spec.profiles):
        problems.name(where, profile)
    for where, port in indexed("spec.ports", spec.ports):
        if not port.name:
            problems.add(f"{where}.name", "", "a port needs a name")
        problems.port_name(f"{where}.name", port.name)
        if port.protocol not in PORT_PROTOCOLS:
            problems.add(f"{where}.protocol", port.protocol, "must be TCP, UDP or SCTP")
        problems.limits(f"{where}.port", port.port, 1, 65535)


def expected_name(spec: WorkloadEndpointSpec) -> str:
    """The name that the spec asks for. Raises InvalidValue when a part is missing."""
    workload = {names.KUBERNETES: spec.pod, names.CNI: spec.containerID}.get(
        spec.orchestrator, spec.workload
    )
    return names.workload_endpoint_name(spec.node, spec.orchestrator, workload, spec.endpoint)


def _check_name(endpoint: WorkloadEndpoint, problems: Problems) -> None:
    try:
        expected = expected_name(endpoint.spec)
    except InvalidValue as problem:
        problems.add(f"spec.{problem.field}", problem.value, problem.rule)
        return
    if endpoint.metadata.name != expected:
        problems.add("metadata.name", endpoint.metadata.name, f"must be {expected} by the spec")


def _check_addresses(spec: WorkloadEndpointSpec, problems: Problems) -> None:
    own = set()
    for where, text in indexed("spec.ipNetworks", spec.ipNetworks):
        before = len(problems)
        problems.network(where, text)
        address = address_of(text)
        if len(problems) == before and address is not None:
            own.add(address)
            if "/" in text and int(text.rpartition("/")[2]) != address.max_prefixlen:
                problems.add(where, text, f"must be a single address: /{address.max_prefixlen}")
    for where, nat in indexed("spec.ipNATs", spec.ipNATs):
        inner, outer = address_of(nat.internalIP), address_of(nat.externalIP)
        problems.address(f"{where}.internalIP", nat.internalIP)
        problems.address(f"{where}.externalIP", nat.externalIP)
        if inner is not None and outer is not None and inner.version != outer.version:
            problems.add(f"{where}.externalIP", nat.externalIP, "must be of internalIP's family")
        if inner not in own:
            problems.add(f"{where}.internalIP", nat.internalIP, "must be one of spec.ipNetworks")
    problems.address("spec.ipv4Gateway", spec.ipv4Gateway, 4)
    problems.address("spec.ipv6Gateway", spec.ipv6Gateway, 6)
    problems.cidrs("spec.allowSpoofedSourcePrefixes", spec.allowSpoofedSourcePrefixes)


def _check_ports(spec: WorkloadEndpointSpec, problems: Problems) -> None:
    for where, port in indexed("spec.ports", spec.ports):
        if port.protocol not in PORT_PROTOCOLS:
            problems.add(f"{where}.protocol", port.protocol, "must be TCP, UDP or SCTP")
        problems.limits(f"{where}.port", port.port, 1, 65535)
        problems.limits(f"{where}.hostPort", port.hostPort, 0, 65535)
        if not port.name and not port.hostPort:
            problems.add(f"{where}.name", port.name, "a port needs a name or a hostPort")
        problems.port_name(f"{where}.name", port.name)
        if port.hostIP:
            problems.network(f"{where}.hostIP", port.hostIP)
