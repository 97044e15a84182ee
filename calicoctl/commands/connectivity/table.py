"""`connectivity`: the table of its commands. Tested in tests/calicoctl/test_completion.py."""

from __future__ import annotations

from calicoctl.cli import examples, lazy_group

connectivity = lazy_group(
    "connectivity",
    "Test whether the network does what it should.",
    {
        "test": (
            "calicoctl.commands.connectivity.test:test",
            "Send probes between pods, services and nodes.",
        ),
    },
)
connectivity.epilog = examples(
    "calicoctl connectivity test",
)
