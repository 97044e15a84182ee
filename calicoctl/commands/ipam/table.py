"""`ipam`: the table of its commands; each lies in a module of its own.

Tested in tests/calicoctl/test_completion.py.
"""

from __future__ import annotations

from calicoctl.cli import examples, lazy_group

ipam = lazy_group(
    "ipam",
    "Manage IP addresses.",
    {
        "check": (
            "calicoctl.commands.ipam.check:check",
            "Check that the records of addresses agree.",
        ),
        "release": ("calicoctl.commands.ipam.release:release", "Release addresses."),
        "show": ("calicoctl.commands.ipam.show:show", "Show who uses which address."),
        "configure": ("calicoctl.commands.ipam.configure:configure", "Change the settings."),
        "split": ("calicoctl.commands.ipam.split:split", "Split a pool into smaller ones."),
        "migrate": (
            "calicoctl.commands.ipam.migrate:migrate",
            "Move the pods of one pool to another.",
        ),
    },
)
ipam.epilog = examples(
    "calicoctl ipam show",
    "calicoctl ipam check --show-problem-ips",
)
