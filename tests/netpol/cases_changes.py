"""What changes while pods run: a policy, a namespace's labels, a pod's labels, and deletion."""

from __future__ import annotations

from tests.netpol.case import Apply, Delete, case, expect, policy
from tests.netpol.cases_ingress import DENY_ALL

NAMESPACE_Y = """
---
apiVersion: v1
kind: Namespace
metadata:
  name: y
  labels: {kubernetes.io/metadata.name: y, ns2: updated}
"""
POD = """
---
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: x
  labels: {{pod: {name}, {more}}}
"""

CASES = [
    case(
        "policy-update-from-open-to-closed",
        Apply(
            policy(
                "changing",
                "x",
                """
                podSelector: {}
                policyTypes: [Ingress]
                ingress: [{}]
                """,
            )
        ),
        expect("tcp:81"),
        Apply(
            policy(
                "changing",
                "x",
                """
                podSelector: {}
                policyTypes: [Ingress]
                ingress: []
                """,
            )
        ),
        expect("tcp:81", "no */* -> x/*"),
    ),
    case(
        "namespace-gets-a-label-that-lets-it-in",
        Apply(
            policy(
                "from-updated",
                "x",
                """
                podSelector: {matchLabels: {pod: a}}
                policyTypes: [Ingress]
                ingress:
                - from:
                  - namespaceSelector: {matchLabels: {ns2: updated}}
                """,
            )
        ),
        expect("tcp:80", "no */* -> x/a"),
        Apply(NAMESPACE_Y),
        expect("tcp:80", "no */* -> x/a", "yes y/* -> x/a"),
    ),
    case(
        "pod-gets-a-label-that-lets-it-in",
        Apply(
            policy(
                "from-updated",
                "x",
                """
                podSelector: {matchLabels: {pod: a}}
                policyTypes: [Ingress]
                ingress:
                - from:
                  - podSelector: {matchLabels: {pod: b, pod2: updated}}
                """,
            )
        ),
        expect("tcp:80", "no */* -> x/a"),
        Apply(POD.format(name="b", more="pod2: updated")),
        expect("tcp:80", "no */* -> x/a", "yes x/b -> x/a"),
    ),
    case(
        "pod-gets-a-label-that-isolates-it",
        Apply(
            policy(
                "isolate",
                "x",
                """
                podSelector: {matchLabels: {target: isolated}}
                policyTypes: [Ingress]
                """,
            )
        ),
        expect("tcp:80"),
        Apply(POD.format(name="a", more="target: isolated")),
        expect("tcp:80", "no */* -> x/a"),
    ),
    case(
        "deleted-policy-is-no-longer-enforced",
        Apply(DENY_ALL),
        expect("tcp:80", "no x/* -> */*", "no */* -> x/*"),
        Delete(DENY_ALL),
        expect("tcp:80"),
    ),
]

OURS = [
    case(
        "pod-gets-a-label-that-shuts-it-in-and-loses-it",
        Apply(
            policy(
                "shut-in",
                "x",
                """
                podSelector: {matchLabels: {target: isolated}}
                policyTypes: [Egress]
                """,
            )
        ),
        Apply(POD.format(name="a", more="target: isolated")),
        expect("tcp:80", "no x/a -> */*"),
        Apply(POD.format(name="a", more="target: free")),
        expect("tcp:80"),
    ),
]
"""Not of the suite."""
