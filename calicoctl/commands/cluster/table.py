"""`cluster`: the table of its commands. Tested in tests/calicoctl/test_completion.py."""

from __future__ import annotations

from calicoctl.cli import examples, lazy_group

cluster = lazy_group(
    "cluster",
    "Gather facts about the whole cluster.",
    {
        "diags": (
            "calicoctl.commands.cluster.diags:diags",
            "Gather what is needed to help a cluster.",
        ),
    },
)
cluster.epilog = examples(
    "calicoctl cluster diags -o bundle.tar.gz",
)
