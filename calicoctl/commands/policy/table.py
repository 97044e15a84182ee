"""`policy`: the table of its commands; each lies in a module of its own.

Tested in tests/calicoctl/test_completion.py.
"""

from __future__ import annotations

from calicoctl.cli import examples, lazy_group

policy = lazy_group(
    "policy",
    "Foresee what policies would change, and write new ones.",
    {
        "plan": (
            "calicoctl.commands.policy.plan:plan",
            "Tell which flows would change verdict if a file were applied.",
        ),
        "recommend": (
            "calicoctl.commands.policy.recommend:recommend",
            "Write the smallest policies that allow what flows were seen.",
        ),
    },
)
policy.epilog = examples(
    "calicoctl policy plan -f policy.yaml",
)
