"""Names that several programs must compute alike: endpoints, host interfaces, handles.

Source: docs/reference/data-model.md#endpoint-names, #interface-names, #attributes-and-handles.
Tested in tests/libcalico/test_names.py with names that a real Calico chose.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from libcalico.errors import InvalidValue

KUBERNETES, CNI, LIBNETWORK = "k8s", "cni", "libnetwork"
DEFAULT_INTERFACE_PREFIX = "cali"
HASH_DIGITS = 11


class WorkloadEndpointName(NamedTuple):
    """The parts of a WorkloadEndpoint's name."""

    node: str
    orchestrator: str
    workload: str
    endpoint: str


@lru_cache(maxsize=512)
def workload_endpoint_name(node: str, orchestrator: str, workload: str, endpoint: str) -> str:
    """The name of a WorkloadEndpoint (docs/reference/data-model.md#endpoint-names): parts joined by
    `-`, inner `-` doubled.

    `workload` is the pod for `k8s`, the container id for `cni`, the workload otherwise
    (`libnetwork` always uses `libnetwork`). Raises InvalidValue for a part that is empty
    or begins or ends with `-`.
    """
    if orchestrator == LIBNETWORK:
        workload = LIBNETWORK
    parts = WorkloadEndpointName(node, orchestrator, workload, endpoint)
    for field, part in parts._asdict().items():
        if not part or part.startswith("-") or part.endswith("-"):
            raise InvalidValue(
                field, part, "must not be empty nor begin or end with '-'", "WorkloadEndpoint name"
            )
    return "-".join(part.replace("-", "--") for part in parts)


def workload_endpoint_prefix(node: str, orchestrator: str = "", workload: str = "") -> str:
    """The beginning of all names with these first parts; ends in a single `-`."""
    parts = [part for part in (node, orchestrator, workload) if part]
    return "".join(part.replace("-", "--") + "-" for part in parts)


def parse(name: str) -> WorkloadEndpointName:
    """The parts of a WorkloadEndpoint's name. Raises InvalidValue when it has not four."""
    parts = [part.replace("\0", "-") for part in name.replace("--", "\0").split("-")]
    if len(parts) != 4 or not all(parts):
        raise InvalidValue(
            "metadata.name", name, "must be <node>-<orchestrator>-<workload>-<endpoint>"
        )
    return WorkloadEndpointName(*parts)


def host_interface_name(namespace: str, pod: str, prefix: str = DEFAULT_INTERFACE_PREFIX) -> str:
    """The host interface of a Kubernetes pod: prefix and 11 hex digits of SHA-1
    (docs/reference/data-model.md#interface-names).
    """
    import hashlib  # it loads OpenSSL: not in a command that names nothing

    digest = hashlib.sha1(f"{namespace}.{pod}".encode(), usedforsecurity=False).hexdigest()
    return prefix + digest[:HASH_DIGITS]


def host_interface_name_cni(container_id: str, prefix: str = DEFAULT_INTERFACE_PREFIX) -> str:
    """The host interface without Kubernetes: prefix, first 11 characters of the container's id."""
    return prefix + container_id[:HASH_DIGITS]


def handle_id(network: str, container_id: str) -> str:
    """The IPAM handle of one attachment: `<CNI network name>.<container id>`
    (docs/reference/data-model.md#attributes-and-handles)."""
    return f"{network}.{container_id}"


def split_handle(handle_id: str) -> tuple[str, str]:
    """Network and container of a handle, cut at its last dot; no network where there is no dot.

    Both may hold dots: `a.b.c` may be container `b.c` of network `a` (see `containers_of`).
    """
    network, _, container = handle_id.rpartition(".")
    return network, container


def containers_of(handle_id: str) -> frozenset[str]:
    """Every container that a handle may name: `b.c` and `c` are those of `a.b.c`."""
    words = handle_id.split(".")
    places = range(1, len(words)) if len(words) > 1 else (0,)
    return frozenset(".".join(words[first:]) for first in places) - {""}


def namespace_profile(namespace: str) -> str:
    """The profile of a namespace (docs/reference/data-model.md#labels-and-profiles-of-pods)."""
    return f"kns.{namespace}"


def service_account_profile(namespace: str, account: str) -> str:
    """The profile of a service account
    (docs/reference/data-model.md#labels-and-profiles-of-pods)."""
    return f"ksa.{namespace}.{account}"


def vxlan_mac(node: str) -> str:
    """The MAC that peers assume for a node's VXLAN device when the Node does not say."""
    import hashlib  # it loads OpenSSL: not in a command that names nothing

    digest = hashlib.sha1(node.encode(), usedforsecurity=False).digest()
    return ":".join(f"{byte:02x}" for byte in (0x66, *digest[:5]))
