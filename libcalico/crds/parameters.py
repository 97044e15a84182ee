"""The validators' rules of Felix's parameters, taken from their tables one by one.

Tested in tests/libcalico/test_crds.py and tests/apiserver/test_crds.py.
"""

from __future__ import annotations

from libcalico.crds.pieces import (
    NOT_NEGATIVE,
    PORT_NUMBERS,
    SELECTOR,
    Piece,
    address,
    any_case,
    each,
    filled,
    limits,
    network,
    pattern,
    words,
)
from libcalico.model.base.numorstring import PORT_NAME
from libcalico.model.resources.felix_values import HealthTimeoutOverride, ProtoPort, RouteTableRange
from libcalico.model.resources.felixconfig import FelixConfigurationSpec
from libcalico.model.validation import felix
from libcalico.model.validation import felix_tables as tables

ANY_PORT: Piece = {
    **limits(1, 65535),
    "pattern": f"^({PORT_NUMBERS}|{PORT_NAME.pattern})$",
}
NUMERIC_PORT: Piece = {**limits(1, 65535), "pattern": f"^{PORT_NUMBERS}$"}

SPEC: dict[str, Piece] = {
    "nodeSelector": SELECTOR,
    **{name: any_case(allowed) for name, allowed in tables.WORDS.items()},
    **{name: words(allowed) for name, allowed in tables.CHOICES.items()},
    **{name: limits(low, high) for name, (low, high) in tables.LIMITS.items()},
    **{name: each(network(version)) for name, version in tables.CIDRS.items()},
    **{name: address(version) for name, version in tables.ADDRESSES.items()},
    **{name: pattern(expression) for name, (expression, _) in tables.PATTERNS.items()},
    **{name: NOT_NEGATIVE for name in tables.DURATIONS if name not in tables.MAY_BE_NEGATIVE},
    "kubeNodePortRanges": each(NUMERIC_PORT, felix.MAX_RANGES),
    "natPortRange": ANY_PORT,
    "bpfPSNATPorts": ANY_PORT,
    "bpfForceTrackPacketsFromIfaces": each(pattern(tables.INTERFACE_FILTER, empty=False)),
    "openstackRegion": {"maxLength": felix.MAX_REGION},
    "istioDSCPMark": limits(0, 63),
}

TABLE: dict[type, dict[str, Piece]] = {
    FelixConfigurationSpec: SPEC,
    HealthTimeoutOverride: {
        "name": filled({"pattern": "^[a-zA-Z0-9_ -]+$"}),
        "timeout": NOT_NEGATIVE,
    },
    ProtoPort: {
        "protocol": any_case(("TCP", "UDP", "SCTP")),
        "port": filled(limits(0, 65535)),
        "net": network(empty=True),
    },
    RouteTableRange: {
        "min": filled(limits(1, tables.MAX_32)),
        "max": filled(limits(1, tables.MAX_32)),
    },
}
