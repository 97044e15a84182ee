"""`bgp`: the table of its commands; each lies in a module of its own.

Tested in tests/calicoctl/test_completion.py.
"""

from __future__ import annotations

from calicoctl.cli import examples, lazy_group

bgp = lazy_group(
    "bgp",
    "Show the BGP of the cluster.",
    {
        "topology": ("calicoctl.commands.bgp.topology:topology", "Show who peers with whom."),
    },
)
bgp.epilog = examples(
    "calicoctl bgp topology",
)
