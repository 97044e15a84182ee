"""Ingress: default deny, and who may come in by pod and namespace selectors."""

from __future__ import annotations

from tests.netpol.case import Apply, case, expect, policy

DENY_INGRESS = policy(
    "deny-ingress",
    "x",
    """
    podSelector: {}
    policyTypes: [Ingress]
    """,
)
DENY_ALL = policy(
    "deny-all",
    "x",
    """
    podSelector: {}
    policyTypes: [Ingress, Egress]
    """,
)
FROM_Y_A = policy(
    "from-y-a",
    "x",
    """
    podSelector: {matchLabels: {pod: a}}
    policyTypes: [Ingress]
    ingress:
    - from:
      - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: y}}
        podSelector: {matchLabels: {pod: a}}
    """,
)


def into_x_a(name: str, peers: str) -> Apply:
    """A policy on x/a that lets in the peers of one rule."""
    head = "podSelector: {matchLabels: {pod: a}}\npolicyTypes: [Ingress]\ningress:\n- from:\n"
    return Apply(policy(name, "x", head + peers))


CASES = [
    case(
        "default-deny-ingress",
        Apply(DENY_INGRESS),
        expect("tcp:80", "no */* -> x/*"),
    ),
    case(
        "default-deny-all",
        Apply(DENY_ALL),
        expect("tcp:80", "no */* -> x/*", "no x/* -> */*"),
    ),
    case(
        "ingress-from-pods-of-the-same-namespace",
        into_x_a("from-b", "  - podSelector: {matchLabels: {pod: b}}"),
        expect("tcp:80", "no */* -> x/a", "yes x/b -> x/a"),
    ),
    case(
        "ingress-for-a-target-under-default-deny",
        Apply(DENY_INGRESS),
        into_x_a("all-to-a", "  - podSelector: {}\n    namespaceSelector: {}"),
        expect("tcp:80", "no */* -> x/*", "yes */* -> x/a"),
    ),
    case(
        "ingress-from-all-namespaces",
        into_x_a("from-everywhere", "  - namespaceSelector: {}"),
        expect("tcp:80"),
    ),
    case(
        "ingress-from-another-namespace-only",
        into_x_a(
            "from-y",
            "  - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: y}}",
        ),
        expect("tcp:80", "no */* -> x/a", "yes y/* -> x/a"),
    ),
    case(
        "ingress-by-pod-expression",
        into_x_a(
            "from-b",
            "  - podSelector:\n      matchExpressions: [{key: pod, operator: In, values: [b]}]",
        ),
        expect("tcp:80", "no */* -> x/a", "yes x/b -> x/a"),
    ),
    case(
        "ingress-by-namespace-expression",
        into_x_a(
            "from-y",
            "  - namespaceSelector:\n"
            "      matchExpressions:\n"
            "      - {key: kubernetes.io/metadata.name, operator: In, values: [y]}",
        ),
        expect("tcp:80", "no */* -> x/a", "yes y/* -> x/a"),
    ),
    case(
        "ingress-by-pod-or-namespace",
        into_x_a(
            "from-outside-or-b",
            "  - namespaceSelector:\n"
            "      matchExpressions:\n"
            "      - {key: kubernetes.io/metadata.name, operator: NotIn, values: [x]}\n"
            "  - podSelector: {matchLabels: {pod: b}}",
        ),
        expect("tcp:80", "no x/c -> x/a"),
    ),
    case(
        "ingress-by-pod-and-namespace",
        into_x_a(
            "from-b-outside",
            "  - namespaceSelector:\n"
            "      matchExpressions:\n"
            "      - {key: kubernetes.io/metadata.name, operator: NotIn, values: [x]}\n"
            "    podSelector: {matchLabels: {pod: b}}",
        ),
        expect("tcp:80", "no */* -> x/a", "yes y/b -> x/a", "yes z/b -> x/a"),
    ),
    case(
        "ingress-by-several-pods-and-namespaces",
        into_x_a(
            "from-b-and-c-outside",
            "  - namespaceSelector:\n"
            "      matchExpressions:\n"
            "      - {key: kubernetes.io/metadata.name, operator: NotIn, values: [x]}\n"
            "    podSelector:\n"
            "      matchExpressions: [{key: pod, operator: In, values: [b, c]}]",
        ),
        expect("tcp:80", "no x/* -> x/a", "no */a -> x/a"),
    ),
    case(
        "ingress-by-any-of-several-pod-selectors",
        into_x_a(
            "from-b-or-c",
            "  - podSelector: {matchLabels: {pod: b}}\n  - podSelector: {matchLabels: {pod: c}}",
        ),
        expect("tcp:80", "no */* -> x/a", "yes x/* -> x/a"),
    ),
    case(
        "ingress-from-one-pod-of-another-namespace",
        Apply(FROM_Y_A),
        expect("tcp:80", "no */* -> x/a", "yes y/a -> x/a"),
    ),
    case(
        "ingress-from-own-namespace-only",
        Apply(
            policy(
                "own-only",
                "x",
                """
                podSelector: {}
                policyTypes: [Ingress]
                ingress:
                - from:
                  - podSelector: {}
                """,
            )
        ),
        expect("tcp:80", "no y/* -> x/*", "no z/* -> x/*"),
    ),
    case(
        "ingress-by-the-built-in-namespace-label",
        into_x_a(
            "from-y-by-name",
            "  - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: y}}",
        ),
        expect("tcp:80", "no x/* -> x/a", "no z/* -> x/a"),
    ),
]
