"""The families that are scenarios of their own: 13 of the Kubernetes suite and one example."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import yaml

from tests.cyclonus.cluster import Change, apply, delete, namespace, pod

Steps = tuple[tuple[Change, ...], ...]


def policy(name: str, space: str, spec: str) -> dict[str, Any]:
    """A NetworkPolicy from the text of its spec."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": space},
        "spec": yaml.safe_load(dedent(spec)),
    }


CLOSED = policy("closed", "x", "{podSelector: {}, policyTypes: [Ingress, Egress]}")
NAMED_PORT = policy(
    "one-port",
    "x",
    """
    podSelector: {}
    policyTypes: [Ingress]
    ingress: [{ports: [{port: serve-81-tcp}]}]
    """,
)
OPEN = policy("open", "x", "{podSelector: {}, policyTypes: [Ingress], ingress: [{}]}")
SHUT = policy("open", "x", "{podSelector: {}, policyTypes: [Ingress], ingress: []}")


def from_y_on(port: int) -> dict[str, Any]:
    """x/a takes tcp from namespace y on one port."""
    return policy(
        f"from-y-on-{port}",
        "x",
        f"""
        podSelector: {{matchLabels: {{pod: a}}}}
        policyTypes: [Ingress]
        ingress:
        - from: [{{namespaceSelector: {{matchLabels: {{ns: y}}}}}}]
          ports: [{{port: {port}, protocol: TCP}}]
        """,
    )


def from_x_a(name: str) -> dict[str, Any]:
    """A pod of y takes everything from x/a."""
    return policy(
        f"x-a-to-{name}",
        "y",
        f"""
        podSelector: {{matchLabels: {{pod: {name}}}}}
        policyTypes: [Ingress]
        ingress:
        - from:
          - namespaceSelector: {{matchLabels: {{ns: x}}}}
            podSelector: {{matchLabels: {{pod: a}}}}
        """,
    )


UPSTREAM: dict[str, Steps] = {
    "default-deny-ingress": (
        apply(policy("closed", "x", "{podSelector: {}, policyTypes: [Ingress], ingress: []}")),
    ),
    "default-deny-all": (
        apply(
            policy(
                "only-names",
                "x",
                """
                podSelector: {}
                policyTypes: [Egress, Ingress]
                egress: [{ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]}]
                """,
            )
        ),
    ),
    "several-pods-and-namespaces": (
        apply(
            policy(
                "from-b-and-c-elsewhere",
                "x",
                """
                podSelector: {matchLabels: {pod: a}}
                policyTypes: [Ingress]
                ingress:
                - from:
                  - namespaceSelector:
                      matchExpressions: [{key: ns, operator: NotIn, values: [x]}]
                    podSelector:
                      matchExpressions: [{key: pod, operator: In, values: [b, c]}]
                """,
            )
        ),
    ),
    "stacked-policies": (apply(from_y_on(81)), (), apply(from_y_on(80))),
    "everything-allowed": (apply(OPEN), ()),
    "one-named-port": (apply(NAMED_PORT),),
    "updated-policy": (apply(OPEN), apply(SHUT)),
    "updated-namespace": (
        apply(
            policy(
                "from-updated",
                "x",
                """
                podSelector: {matchLabels: {pod: a}}
                policyTypes: [Ingress]
                ingress: [{from: [{namespaceSelector: {matchLabels: {ns2: updated}}}]}]
                """,
            )
        ),
        apply(namespace("y", ns="y", ns2="updated")),
    ),
    "updated-pod-gets-in": (
        apply(
            policy(
                "from-updated",
                "x",
                """
                podSelector: {matchLabels: {pod: a}}
                policyTypes: [Ingress]
                ingress: [{from: [{podSelector: {matchLabels: {pod: b, pod2: updated}}}]}]
                """,
            )
        ),
        apply(pod("x/b", pod="b", pod2="updated")),
    ),
    "updated-pod-is-isolated": (
        apply(
            policy(
                "isolate",
                "x",
                "{podSelector: {matchLabels: {target: isolated}}, policyTypes: [Ingress]}",
            )
        ),
        apply(pod("x/a", target="isolated")),
    ),
    "both-directions-in-one": (
        apply(
            policy(
                "both",
                "x",
                """
                podSelector: {matchLabels: {pod: a}}
                policyTypes: [Ingress, Egress]
                ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}]}]
                egress: [{ports: [{port: 80}, {protocol: UDP, port: 53}]}]
                """,
            )
        ),
        (),
    ),
    "egress-denied-though-the-server-allows": (
        apply(
            policy(
                "to-y-a",
                "x",
                """
                podSelector: {matchLabels: {pod: a}}
                policyTypes: [Egress]
                egress:
                - to:
                  - namespaceSelector: {matchLabels: {ns: y}}
                    podSelector: {matchLabels: {pod: a}}
                - ports: [{protocol: UDP, port: 53}]
                """,
            ),
            from_x_a("a"),
            from_x_a("b"),
        ),
    ),
    "deleted-policy": (apply(CLOSED), delete(CLOSED)),
}
EXAMPLE: dict[str, Steps] = {
    "one-named-port-while-a-pod-comes-and-goes": (
        apply(NAMED_PORT),
        apply(namespace("w", ns="w"), pod("w/a", pod="a")),
        delete(pod("w/a")),
        delete(namespace("w")),
        (),
    ),
}
