"""What a machine must be to carry a node: over forty checks, each a pure function over facts."""

from node.checks import kernel, host, network, cluster, datastore, kubernetes  # isort: skip
from node.checks.check import CHECKS, Check, Result, Verdict, run
from node.checks.facts import Facts

__all__ = [
    "CHECKS",
    "Check",
    "Facts",
    "Result",
    "Verdict",
    "cluster",
    "datastore",
    "host",
    "kernel",
    "kubernetes",
    "network",
    "run",
]
