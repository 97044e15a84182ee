"""`node`: the table of its commands; each lies in a module of its own.

Tested in tests/calicoctl/test_completion.py.
"""

from __future__ import annotations

from calicoctl.cli import examples, lazy_group

node = lazy_group(
    "node",
    "Run, check and explain a node.",
    {
        "run": ("calicoctl.commands.node.run:run", "Run this machine as a node."),
        "status": ("calicoctl.commands.node.status:status", "Tell how this node is doing."),
        "bgp": ("calicoctl.commands.node.bgp:node_bgp", "Foresee and steer the BGP of nodes."),
        "drops": (
            "calicoctl.commands.node.drops:drops",
            "Tell who denied packets on this node.",
        ),
        "trace": (
            "calicoctl.commands.node.trace:node_trace",
            "Watch one connection on this node.",
        ),
        "diags": ("calicoctl.commands.node.diags:diags", "Gather what is needed to help a node."),
        "checksystem": (
            "calicoctl.commands.node.checksystem:checksystem",
            "Check what this machine must have to be a node.",
        ),
    },
)
node.epilog = examples(
    "calicoctl node status",
    "calicoctl node checksystem",
)
