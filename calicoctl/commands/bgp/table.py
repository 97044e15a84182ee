"""`bgp`: the table of its commands; each lies in a module of its own.

Tested in tests/calicoctl/test_completion.py.
"""

from __future__ import annotations

from calicoctl.cli import examples, lazy_group

bgp = lazy_group(
    "bgp",
    "Show the BGP of the cluster.",
    {
        "peers": ("calicoctl.commands.bgp.peers:peers", "Show the sessions of all nodes."),
        "routes": ("calicoctl.commands.bgp.routes:routes", "Show which node has which route."),
        "topology": ("calicoctl.commands.bgp.topology:topology", "Show who peers with whom."),
    },
)
bgp.epilog = examples(
    "calicoctl bgp peers --ask 10",
    "calicoctl bgp routes 10.65.0.0/16",
    "calicoctl bgp topology",
)
