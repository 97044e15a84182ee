"""Egress: default deny, selectors, CIDR blocks; both directions of one pod."""

from __future__ import annotations

from tests.netpol.case import Apply, case, expect, policy


def out_of_x_a(name: str, rules: str) -> Apply:
    """A policy on x/a with some egress rules."""
    head = "podSelector: {matchLabels: {pod: a}}\npolicyTypes: [Egress]\negress:\n"
    return Apply(policy(name, "x", head + rules))


TO_Y_A = out_of_x_a(
    "to-y-a",
    "- to:\n"
    "  - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: y}}\n"
    "    podSelector: {matchLabels: {pod: a}}",
)
ALL_BUT_X_B = '- to:\n  - ipBlock: {cidr: "${large}", except: ["${x/b}/32"]}'


def from_x_a(target: str) -> str:
    """A policy on a pod of y that lets x/a in."""
    return policy(
        f"x-a-to-{target}",
        "y",
        f"""
        podSelector: {{matchLabels: {{pod: {target}}}}}
        policyTypes: [Ingress]
        ingress:
        - from:
          - namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: x}}}}
            podSelector: {{matchLabels: {{pod: a}}}}
        """,
    )


CASES = [
    case(
        "egress-denied-for-one-pod",
        Apply(
            policy(
                "deny-egress",
                "x",
                """
                podSelector: {matchLabels: {pod: a}}
                policyTypes: [Egress]
                egress: []
                """,
            )
        ),
        expect("tcp:80", "no x/a -> */*"),
    ),
    case(
        "egress-denied-for-a-namespace",
        Apply(
            policy(
                "deny-egress",
                "x",
                """
                podSelector: {}
                policyTypes: [Egress]
                """,
            )
        ),
        expect("tcp:80", "no x/* -> */*"),
    ),
    case(
        "ingress-and-egress-in-one-policy",
        Apply(
            policy(
                "both-ways",
                "x",
                """
                podSelector: {matchLabels: {pod: a}}
                policyTypes: [Egress, Ingress]
                ingress:
                - from:
                  - podSelector: {matchLabels: {pod: b}}
                egress:
                - ports: [{port: 80}]
                """,
            )
        ),
        expect("tcp:80", "no */* -> x/a", "yes x/b -> x/a"),
        expect("tcp:81", "no */* -> x/a", "no x/a -> */*", "yes x/b -> x/a"),
    ),
    case(
        "egress-denied-though-the-server-allows",
        TO_Y_A,
        Apply(from_x_a("a") + from_x_a("b")),
        expect(
            "tcp:80",
            "no x/a -> */*",
            "no */* -> y/a",
            "no */* -> y/b",
            "yes x/a -> y/a",
        ),
    ),
    case(
        "egress-to-one-pod-of-another-namespace",
        TO_Y_A,
        expect("tcp:80", "no x/a -> */*", "yes x/a -> y/a"),
    ),
    case(
        "egress-by-the-built-in-namespace-label-expression",
        out_of_x_a(
            "not-to-y",
            "- to:\n"
            "  - namespaceSelector:\n"
            "      matchExpressions:\n"
            "      - {key: kubernetes.io/metadata.name, operator: NotIn, values: [y]}",
        ),
        expect("tcp:80", "no x/a -> y/*"),
    ),
    case(
        "egress-to-a-cidr",
        out_of_x_a("to-y-b", '- to:\n  - ipBlock: {cidr: "${y/b}/32"}'),
        expect("tcp:80", "no x/a -> */*", "yes x/a -> y/b"),
    ),
    case(
        "egress-to-a-cidr-with-exception",
        out_of_x_a("all-but-x-b", ALL_BUT_X_B),
        expect("tcp:80", "no x/a -> x/b"),
    ),
    case(
        "egress-to-an-exception-that-becomes-the-cidr",
        out_of_x_a("about-x-b", ALL_BUT_X_B),
        expect("tcp:80", "no x/a -> x/b"),
        out_of_x_a("about-x-b", '- to:\n  - ipBlock: {cidr: "${x/b}/32"}'),
        expect("tcp:80", "no x/a -> */*", "yes x/a -> x/b"),
    ),
    case(
        "ingress-and-egress-controlled-independently",
        out_of_x_a("all-egress", "- {}"),
        expect("tcp:80"),
        Apply(
            policy(
                "no-ingress",
                "x",
                """
                podSelector: {matchLabels: {pod: a}}
                policyTypes: [Ingress]
                """,
            )
        ),
        expect("tcp:80", "no */* -> x/a"),
    ),
]
