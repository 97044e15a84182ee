"""The usual mistakes, told to the author of a clause that did not match.

Every function answers with a sentence, or the empty text where it knows none.

Tested in tests/felix/explain/misses/test_near.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from felix.explain.flow import IPAddress, Packet, protocol_name
from felix.explain.misses.labelled import Labelled
from felix.explain.misses.terms import Term
from felix.explain.world import World
from libcalico.model import Rule
from libcalico.policy_selectors import (
    NAMESPACE_LABEL,
    NAMESPACE_PREFIX,
    SERVICE_ACCOUNT_LABEL,
    SERVICE_ACCOUNT_PREFIX,
)
from libcalico.selectors.selectors import Compare, InSet

NAMES_OF_NAMESPACES = ("projectcalico.org/name", "kubernetes.io/metadata.name")
CLOSE = 0.75
"""How alike two names must be (difflib's ratio), to be taken for a slip of the pen."""
_PREFIXES = (NAMESPACE_PREFIX, SERVICE_ACCOUNT_PREFIX)


def of_term(term: Term, field: str, one: Labelled) -> str:
    """What a term of a selector probably means. `field`: the clause where it stands."""
    label = term.label
    if not label:
        return ""
    prefix = next((p for p in _PREFIXES if label.startswith(p)), "")
    plain = label.removeprefix(prefix)
    if field.endswith(("namespaceSelector", "serviceAccountSelector")):
        return _of_scope(term, prefix, plain, one)
    if prefix:
        return _elsewhere(term, plain, one) or _slip(term, one.labels, label)
    for other in _PREFIXES:
        if term.holding and term.about(other + plain).holds(one.labels):
            kind = "namespace" if other == NAMESPACE_PREFIX else "service account"
            inside = "namespaceSelector" if other == NAMESPACE_PREFIX else "serviceAccounts"
            return (
                f"{plain} is a label of the {kind}, not of the {_kind(one)}: write"
                f" {other}{plain} in a selector, or say it in {inside}"
            )
    if plain in ("namespace", "ns") and term.about(NAMESPACE_LABEL).holds(one.labels):
        return f"the label of a namespace's name is {NAMESPACE_LABEL}"
    if plain == "serviceaccount" and term.about(SERVICE_ACCOUNT_LABEL).holds(one.labels):
        return f"the label of a service account's name is {SERVICE_ACCOUNT_LABEL}"
    return _slip(term, one.labels, label)


def _of_scope(term: Term, prefix: str, plain: str, one: Labelled) -> str:
    """In a field that speaks of the labels of namespaces (or service accounts) by itself."""
    kind = "namespace" if prefix == NAMESPACE_PREFIX else "service account"
    if plain.startswith(prefix) and term.about(plain).holds(one.labels):
        return (
            f"this field speaks of the labels of the {kind} by itself:"
            f" write {plain.removeprefix(prefix)}, without {prefix}"
        )
    if plain in (NAMESPACE_LABEL, "namespace", "name", *NAMES_OF_NAMESPACES):
        for name in NAMES_OF_NAMESPACES:
            if name != plain and term.about(prefix + name).holds(one.labels):
                return f"the name of a namespace is its label {name}"
    if term.holding and term.about(plain).holds(one.labels):
        return (
            f"{plain} is a label of the {_kind(one)}, not of its {kind}: say it in selector instead"
        )
    return _slip(term, one.labels, prefix + plain, prefix)


def _elsewhere(term: Term, plain: str, one: Labelled) -> str:
    if term.holding and plain and term.about(plain).holds(one.labels):
        return f"{plain} is a label of the {_kind(one)} itself: write it without the prefix"
    return ""


def _slip(term: Term, labels: Mapping[str, str], label: str, prefix: str = "") -> str:
    """A name or value that is nearly right."""
    if not term.holding:
        return ""
    if label not in labels:
        names = [name for name in labels if name.startswith(prefix)]
        for name in get_close_matches(label, names, 3, CLOSE):
            if term.about(name).holds(labels):
                return f"the label is called {name.removeprefix(prefix)}"
        return ""
    value = labels[label]
    values = _values(term)
    for each in values:
        if each.lower() == value.lower():
            return f"values are compared to the letter: {value!r} is not {each!r}"
    if len(value) > 3 and get_close_matches(value, values, 1, CLOSE):
        return f"{value!r} is spelled nearly like {get_close_matches(value, values, 1, CLOSE)[0]!r}"
    return ""


def _values(term: Term) -> list[str]:
    match term.node:
        case Compare(_, "==", value):
            return [value]
        case InSet(_, values, False):
            return sorted(values)
    return []


def _kind(one: Labelled) -> str:
    return "pod" if one.title.startswith("pod ") else "endpoint"


def of_namespace(one: Labelled) -> str:
    """How a selector of a NetworkPolicy reaches beyond its namespace."""
    namespace = one.labels.get(NAMESPACE_LABEL)
    if namespace is None:
        return "it lies in no namespace: add namespaceSelector: global()"
    name = next((n for n in NAMES_OF_NAMESPACES if NAMESPACE_PREFIX + n in one.labels), "")
    if not name:
        return f"add a namespaceSelector that matches namespace {namespace}"
    return f"add namespaceSelector: {name} == '{namespace}'"


def of_protocol(rule: Rule, packet: Packet, ports_match: bool, kubernetes: bool) -> str:
    """A rule of another protocol."""
    number = packet.kind.protocol
    if not (packet.kind.has_ports and ports_match):
        return ""
    if kubernetes:
        return (
            f"the port matches: in Kubernetes a port without a protocol is one of {rule.protocol}"
        )
    return f"the port matches: add the same rule for {protocol_name(number).upper()}"


def of_source_ports() -> str:
    """Where a rule has the service's port on the sender's side."""
    return "these are the sender's ports: the port that is reached stands in destination.ports"


def of_named_port(entries: Iterable[str], behind: Iterable[Labelled], protocol: str) -> str:
    """A port by a name that the endpoint does not give, or gives to another port."""
    given = [port for one in behind for port in one.ports]
    for port in given:
        if port.name in entries and port.protocol != protocol:
            return f"{port.name} is a port of {port.protocol} there; the rule means {protocol}"
    names = ", ".join(f"{port.name} ({port.protocol} {port.number})" for port in given)
    return f"names of ports there: {names}" if names else "no port has a name there"


def of_nets(world: World, side: str, address: IPAddress, nets: Iterable[object],
            behind: tuple[Labelled, ...]) -> str:  # fmt: skip
    """Networks that do not hold the address."""
    networks = [net for net in nets if getattr(net, "version", 0) == address.version]
    if not networks:
        return f"the rule names no IPv{address.version} network"
    pods = [one for one in behind if one.title.startswith("pod ")]
    if not pods:
        return ""
    inside = any(net.overlaps(pool.network)  # type: ignore[attr-defined]
                 for net in networks for pool in world.pools
                 if pool.network.version == address.version)  # fmt: skip
    if inside:
        return f"addresses of pods change: name {pods[0].title} by a selector"
    if side == "destination":
        return (
            f"policy sees {pods[0].title} by its own address, never by a Service's:"
            " name it by a selector"
        )
    return ""
