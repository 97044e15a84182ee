"""The requirements on a machine of a node: over forty checks, each a pure function over facts."""

# isort: off
# The checks run in the order of these imports.
from node.checks import kernel, sysctls, host, ports, network, pools, reachability
from node.checks import cluster, datastore, kubernetes

# isort: on
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
    "pools",
    "ports",
    "reachability",
    "run",
    "sysctls",
]
