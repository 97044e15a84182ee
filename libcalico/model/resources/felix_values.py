"""Values of Felix's parameters that have fields of their own
(docs/reference/data-model.md#felixconfiguration).

Tested in tests/libcalico/test_golden.py.
"""

from __future__ import annotations

from libcalico.model.base.base import Struct, always
from libcalico.model.base.meta import Duration


class HealthTimeoutOverride(Struct, frozen=True, kw_only=True):
    """Another time limit for one reporter of Felix's health."""

    name: str = always("")
    timeout: Duration = always("0s")


class ProtoPort(Struct, frozen=True, kw_only=True):
    """A port that stays open under every policy; `net` narrows it to a network."""

    protocol: str = ""
    port: int = always(0)
    net: str = ""


class RouteTableRange(Struct, frozen=True, kw_only=True):
    """Routing tables that Felix may use, both ends included."""

    min: int = always(0)
    max: int = always(0)


class BPFConntrackTimeouts(Struct, frozen=True):
    """How long the eBPF data plane remembers connections: Go durations, or `Auto`."""

    creationGracePeriod: str | None = None
    tcpSynSent: str | None = None
    tcpEstablished: str | None = None
    tcpFinsSeen: str | None = None
    tcpResetSeen: str | None = None
    udpTimeout: str | None = None
    genericTimeout: str | None = None
    icmpTimeout: str | None = None
