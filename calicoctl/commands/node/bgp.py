"""`node bgp`: the table of its commands; each lies in a module of its own.

Tested in tests/calicoctl/test_bgp_plan.py.
"""

from __future__ import annotations

from calicoctl.cli import examples, lazy_group

node_bgp = lazy_group(
    "bgp",
    "Foresee and steer the BGP of nodes.",
    {
        "plan": (
            "calicoctl.commands.node.bgp_plan:plan",
            "Tell which sessions would change if a file were applied.",
        ),
        "drain": (
            "calicoctl.commands.node.bgp_drain:drain",
            "Make a node's routes the last choice, before work on it.",
        ),
        "undrain": (
            "calicoctl.commands.node.bgp_drain:undrain",
            "Make a node's routes what they were before a drain.",
        ),
    },
)
node_bgp.epilog = examples(
    "calicoctl node bgp plan -f peers.yaml",
    "calicoctl node bgp drain node1",
)
