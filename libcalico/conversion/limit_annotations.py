"""Limits and marks of a pod's traffic, from its annotations.

    qos.projectcalico.org/ingressBandwidth: 100M      bits a second to the pod
    qos.projectcalico.org/dscp: EF

A value is a quantity of Kubernetes ("10M", "1Gi", "1500"). One outside its range is set to the
range's end, and one that cannot be read asks for nothing; both are complaints, and the pod runs.
What goes with another value is left out where that one is missing: a burst without its rate.

`kubernetes.io/ingress-bandwidth` and `egress-bandwidth` are for the chained plugin `bandwidth`,
which fails where a link has a limit already. So a pod with one of these has no bandwidth of ours in
that direction.

Source: https://docs.tigera.io/calico/latest/networking/configuring/qos-controls and
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/.
Tested in tests/libcalico/test_limit_annotations.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal

from libcalico.model.resources.endpoint import QoSControls
from libcalico.model.validation.network_values import is_dscp

PREFIX = "qos.projectcalico.org/"
DSCP = PREFIX + "dscp"
OF_KUBERNETES = {way: f"kubernetes.io/{way}-bandwidth" for way in ("ingress", "egress")}
DEFAULT_BURST = 1 << 32
"""Bits: 512 MiB."""
DEFAULT_PACKET_BURST = 5
MOST_PACKETS = 10_000
"""Of a rate and of a burst: what xt_limit takes."""
MOST_CONNECTIONS = (1 << 32) - 1
_MOST_BURST = (1 << 32) - 1 << 3
_RANGES = {
    "Bandwidth": (1_000, 10**15),
    "Burst": (1_000, _MOST_BURST),
    "Peakrate": (1_010, 1_010 * 10**12),
    "Minburst": (1_000, 10**8),
    "PacketRate": (1, MOST_PACKETS),
    "PacketBurst": (1, MOST_PACKETS),
    "MaxConnections": (1, MOST_CONNECTIONS),
}
_FIELDS = {f"{PREFIX}{way}{what}": f"{way}{what}" for way in OF_KUBERNETES for what in _RANGES}
"""Annotations and the fields that they set."""
_QUANTITY = re.compile(
    r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII
)
_SUFFIXES = {
    **{letter: Decimal(1000) ** power for power, letter in enumerate("num", -3)},
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}


@dataclass(frozen=True, slots=True)
class Asked:
    """`controls` None: the pod asks for nothing. `complaints`: what is not as it was written."""

    controls: QoSControls | None
    complaints: tuple[str, ...] = ()


NOTHING = Asked(None)


def asked(annotations: Mapping[str, str]) -> Asked:
    """What a pod's annotations ask for."""
    found = {
        field: (name, annotations[name]) for name, field in _FIELDS.items() if name in annotations
    }
    if not found and DSCP not in annotations:
        return NOTHING
    complaints: list[str] = []
    values: dict[str, int] = {}
    for field, (name, text) in found.items():
        least, most = _range_of(field)
        number = quantity(text)
        if number is None:
            complaints.append(f"{name}: {text!r}: must be a quantity such as 10M; ignored")
            continue
        values[field] = min(max(number, least), most)
        if values[field] != number:
            complaints.append(f"{name}: {text!r}: must be {least} to {most}: {values[field]} it is")
    for direction, theirs in OF_KUBERNETES.items():
        if theirs in annotations and values.pop(f"{direction}Bandwidth", None) is not None:
            complaints.append(f"{PREFIX}{direction}Bandwidth: {theirs} asks for it; ignored")
        complaints += _completed(values, direction)
    dscp: int | str | None = None
    if text := annotations.get(DSCP, ""):
        if is_dscp(text):
            dscp = int(text) if text.isdigit() else text
        else:
            complaints.append(f"{DSCP}: {text!r}: must be 0 to 63 or a name such as EF; ignored")
    controls = QoSControls(**values, dscp=dscp)
    return Asked(None if controls == QoSControls() else controls, tuple(complaints))


def quantity(text: str) -> int | None:
    """A quantity of Kubernetes as a whole number, rounded up; None: it is none."""
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    value = Decimal(number + (exponent or "")) * _SUFFIXES.get(suffix or "", Decimal(1))
    return int(value.to_integral_value(ROUND_CEILING))


def _range_of(field: str) -> tuple[int, int]:
    return _RANGES[field.removeprefix("ingress").removeprefix("egress")]


def _completed(values: dict[str, int], direction: str) -> list[str]:
    """Take out what lacks the value that it goes with, and put defaults in; the complaints."""
    complaints = []
    rate = values.get(f"{direction}Bandwidth", 0)
    for what, needs, fit in (
        ("Burst", "Bandwidth", bool(rate)),
        ("Peakrate", "a smaller Bandwidth", 0 < rate < values.get(f"{direction}Peakrate", 0)),
        ("Minburst", "Peakrate", f"{direction}Peakrate" in values),
        ("PacketBurst", "PacketRate", f"{direction}PacketRate" in values),
    ):
        if f"{direction}{what}" in values and not fit:
            del values[f"{direction}{what}"]
            complaints.append(f"{PREFIX}{direction}{what}: needs {needs}; ignored")
    if rate:
        values.setdefault(f"{direction}Burst", DEFAULT_BURST)
    if f"{direction}PacketRate" in values:
        values.setdefault(f"{direction}PacketBurst", DEFAULT_PACKET_BURST)
    return complaints
