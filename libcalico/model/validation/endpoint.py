"""Rules of WorkloadEndpoint and HostEndpoint (docs/reference/data-model.md#workloadendpoint,
#hostendpoint, #endpoint-names).

Tested in tests/libcalico/test_validate.py and tests/libcalico/test_invalid_documents.py.
"""

from __future__ import annotations

from libcalico import names
from libcalico.errors import InvalidValue
from libcalico.model.resources.endpoint import WorkloadEndpoint, WorkloadEndpointSpec
from libcalico.model.resources.hostendpoint import HostEndpoint
from libcalico.model.validation.checks import CONTAINER_ID, INTERFACE, Problems, address_of

PORT_PROTOCOLS = ("TCP", "UDP", "SCTP", 6, 17, 132)
INTERFACE_RULE = "must be 1 to 15 letters, digits, '_', '.' and '-'"


def check(endpoint: WorkloadEndpoint, found: Problems) -> None:
    """Everything that is wrong with an endpoint."""
    spec = endpoint.spec
    for field in ("orchestrator", "workload", "node", "pod", "endpoint", "serviceAccountName"):
        found.name(f"spec.{field}", getattr(spec, field))
    rule = "must be letters, digits and inner '-'"
    found.pattern("spec.containerID", spec.containerID, CONTAINER_ID, rule)
    _check_name(endpoint, found)
    _check_addresses(spec, found)
    for index, profile in enumerate(spec.profiles):
        found.name(f"spec.profiles[{index}]", profile)
    if not INTERFACE.fullmatch(spec.interfaceName):
        found.add("spec.interfaceName", spec.interfaceName, INTERFACE_RULE)
    found.mac("spec.mac", spec.mac)
    _check_ports(spec, found)
    if spec.qosControls is not None:
        found.dscp("spec.qosControls.dscp", spec.qosControls.dscp)


def check_host(endpoint: HostEndpoint, found: Problems) -> None:
    """Everything that is wrong with a host endpoint."""
    spec = endpoint.spec
    if not spec.node:
        found.add("spec.node", "", "must name the node")
    found.name("spec.node", spec.node)
    if not spec.interfaceName and not spec.expectedIPs:
        rule = "interfaceName or expectedIPs must say which interface"
        found.add("spec.interfaceName", "", rule)
    if spec.interfaceName != "*":
        rule = f"{INTERFACE_RULE}, or * for all"
        found.pattern("spec.interfaceName", spec.interfaceName, INTERFACE, rule)
    for index, text in enumerate(spec.expectedIPs):
        if not text:
            found.add(f"spec.expectedIPs[{index}]", text, "must be an IP address")
        found.address(f"spec.expectedIPs[{index}]", text)
    for index, profile in enumerate(spec.profiles):
        found.name(f"spec.profiles[{index}]", profile)
    for index, port in enumerate(spec.ports):
        where = f"spec.ports[{index}]"
        if not port.name:
            found.add(f"{where}.name", "", "a port needs a name")
        found.port_name(f"{where}.name", port.name)
        if port.protocol not in PORT_PROTOCOLS:
            found.add(f"{where}.protocol", port.protocol, "must be TCP, UDP or SCTP")
        found.limits(f"{where}.port", port.port, 1, 65535)


def expected_name(spec: WorkloadEndpointSpec) -> str:
    """The name that the spec asks for. Raises InvalidValue when a part is missing."""
    workload = {names.KUBERNETES: spec.pod, names.CNI: spec.containerID}.get(
        spec.orchestrator, spec.workload
    )
    return names.workload_endpoint_name(spec.node, spec.orchestrator, workload, spec.endpoint)


def _check_name(endpoint: WorkloadEndpoint, found: Problems) -> None:
    try:
        wanted = expected_name(endpoint.spec)
    except InvalidValue as problem:
        found.add(f"spec.{problem.field}", problem.value, problem.rule)
        return
    if endpoint.metadata.name != wanted:
        found.add("metadata.name", endpoint.metadata.name, f"must be {wanted} by the spec")


def _check_addresses(spec: WorkloadEndpointSpec, found: Problems) -> None:
    own = set()
    for index, text in enumerate(spec.ipNetworks):
        where = f"spec.ipNetworks[{index}]"
        before = len(found)
        found.network(where, text)
        address = address_of(text)
        if len(found) == before and address is not None:
            own.add(address)
            if "/" in text and int(text.rpartition("/")[2]) != address.max_prefixlen:
                found.add(where, text, f"must be a single address: /{address.max_prefixlen}")
    for index, nat in enumerate(spec.ipNATs):
        where = f"spec.ipNATs[{index}]"
        inner, outer = address_of(nat.internalIP), address_of(nat.externalIP)
        found.address(f"{where}.internalIP", nat.internalIP)
        found.address(f"{where}.externalIP", nat.externalIP)
        if inner is not None and outer is not None and inner.version != outer.version:
            found.add(f"{where}.externalIP", nat.externalIP, "must be of internalIP's family")
        if inner not in own:
            found.add(f"{where}.internalIP", nat.internalIP, "must be one of spec.ipNetworks")
    found.address("spec.ipv4Gateway", spec.ipv4Gateway, 4)
    found.address("spec.ipv6Gateway", spec.ipv6Gateway, 6)
    for index, text in enumerate(spec.allowSpoofedSourcePrefixes):
        found.network(f"spec.allowSpoofedSourcePrefixes[{index}]", text, host_bits=True)


def _check_ports(spec: WorkloadEndpointSpec, found: Problems) -> None:
    for index, port in enumerate(spec.ports):
        where = f"spec.ports[{index}]"
        if port.protocol not in PORT_PROTOCOLS:
            found.add(f"{where}.protocol", port.protocol, "must be TCP, UDP or SCTP")
        found.limits(f"{where}.port", port.port, 1, 65535)
        found.limits(f"{where}.hostPort", port.hostPort, 0, 65535)
        if not port.name and not port.hostPort:
            found.add(f"{where}.name", port.name, "a port needs a name or a hostPort")
        found.port_name(f"{where}.name", port.name)
        if port.hostIP:
            found.network(f"{where}.hostIP", port.hostIP)
