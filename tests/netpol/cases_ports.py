"""Ports by number and by name, and protocols that must not open one another."""

from __future__ import annotations

from tests.netpol.case import Apply, case, expect, policy
from tests.netpol.cases_ingress import DENY_INGRESS, FROM_Y_A


def from_y(name: str, ports: str) -> Apply:
    """A policy on x/a that lets namespace y in on some ports."""
    return Apply(
        policy(
            name,
            "x",
            f"""
            podSelector: {{matchLabels: {{pod: a}}}}
            policyTypes: [Ingress]
            ingress:
            - from:
              - namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: y}}}}
              ports: {ports}
            """,
        )
    )


def into(name: str, pods: str, ports: str) -> Apply:
    """A policy on pods of x that lets everyone in on some ports."""
    return Apply(
        policy(
            name,
            "x",
            f"""
            podSelector: {pods}
            policyTypes: [Ingress]
            ingress:
            - ports: {ports}
            """,
        )
    )


def out_of(name: str, ports: str) -> Apply:
    """A policy on all pods of x that lets them out on some ports."""
    return Apply(
        policy(
            name,
            "x",
            f"""
            podSelector: {{}}
            policyTypes: [Egress]
            egress:
            - ports: {ports}
            """,
        )
    )


X_A = "{matchLabels: {pod: a}}"
ONLY_Y = ("no x/* -> x/a", "no z/* -> x/a")

CASES = [
    case(
        "port-by-number",
        from_y("y-on-81", "[{port: 81, protocol: TCP}]"),
        expect("tcp:81", *ONLY_Y),
    ),
    case(
        "stacked-policies-add-up",
        from_y("y-on-81", "[{port: 81, protocol: TCP}]"),
        expect("tcp:81", *ONLY_Y),
        expect("tcp:80", "no */* -> x/a"),
        from_y("y-on-80", "[{port: 80, protocol: TCP}]"),
        expect("tcp:80", *ONLY_Y),
    ),
    case(
        "allow-all-ingress",
        Apply(
            policy(
                "allow-all",
                "x",
                """
                podSelector: {}
                policyTypes: [Ingress]
                ingress: [{}]
                """,
            )
        ),
        expect("tcp:80"),
        expect("tcp:81"),
    ),
    case(
        "ingress-on-a-named-port",
        into("named-81", "{}", "[{port: serve-81-tcp}]"),
        expect("tcp:81"),
        expect("tcp:80", "no */* -> x/*"),
    ),
    case(
        "ingress-from-a-namespace-on-a-named-port",
        from_y("y-on-named-80", "[{port: serve-80-tcp, protocol: TCP}]"),
        expect("tcp:80", *ONLY_Y),
        expect("tcp:81", "no */* -> x/a"),
    ),
    case(
        "egress-on-a-named-port",
        out_of("named-80", "[{port: serve-80-tcp}]"),
        expect("tcp:80"),
        expect("tcp:81", "no x/* -> */*"),
    ),
    case(
        "any-port-of-one-protocol",
        into("tcp-only", X_A, "[{protocol: TCP}]"),
        expect("tcp:80"),
        expect("udp:80", "no */* -> x/a"),
    ),
    case(
        "ingress-allow-all-wins-over-one-port",
        into("only-80", "{}", "[{port: 80}]"),
        expect("tcp:81", "no */* -> x/*"),
        Apply(
            policy(
                "all-ingress",
                "x",
                """
                podSelector: {}
                policyTypes: [Ingress]
                ingress: [{}]
                """,
            )
        ),
        expect("tcp:81"),
    ),
    case(
        "egress-allow-all-wins-over-one-port",
        out_of("only-80", "[{port: 80}]"),
        expect("tcp:81", "no x/* -> */*"),
        Apply(
            policy(
                "all-egress",
                "x",
                """
                podSelector: {}
                policyTypes: [Egress]
                egress: [{}]
                """,
            )
        ),
        expect("tcp:81"),
    ),
    case(
        "sctp-rule-opens-no-tcp",
        Apply(DENY_INGRESS),
        into("sctp-81", X_A, "[{port: 81, protocol: SCTP}]"),
        expect("tcp:81", "no */* -> x/*"),
    ),
    case(
        "sctp-rule-isolates-for-tcp",
        into("sctp-80", X_A, "[{port: 80, protocol: SCTP}]"),
        expect("tcp:81", "no */* -> x/a"),
    ),
    case(
        "udp-rule-opens-no-tcp",
        into("udp-81", X_A, "[{port: 81, protocol: UDP}]"),
        expect("tcp:81", "no */* -> x/a"),
    ),
    case(
        "udp-default-deny-ingress",
        Apply(DENY_INGRESS),
        expect("udp:80", "no */* -> x/*"),
    ),
    case(
        "udp-port-by-number",
        from_y("y-on-81", "[{port: 81, protocol: UDP}]"),
        expect("udp:81", *ONLY_Y),
    ),
    case(
        "udp-ingress-from-one-pod-of-another-namespace",
        Apply(FROM_Y_A),
        expect("udp:80", "no */* -> x/a", "yes y/a -> x/a"),
    ),
    case(
        "sctp-default-deny-ingress",
        Apply(DENY_INGRESS),
        expect("sctp:80", "no */* -> x/*"),
    ),
    case(
        "sctp-port-by-number",
        from_y("y-on-81", "[{port: 81, protocol: SCTP}]"),
        expect("sctp:81", *ONLY_Y),
    ),
    case(
        "sctp-ingress-from-one-pod-of-another-namespace",
        Apply(FROM_Y_A),
        expect("sctp:80", "no */* -> x/a", "yes y/a -> x/a"),
    ),
]
