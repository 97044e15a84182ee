"""`ipam`: the table of its commands; each lies in a module of its own."""

from __future__ import annotations

from calicoctl.cli import lazy_group

ipam = lazy_group(
    "ipam",
    "Manage IP addresses.",
    {
        "check": (
            "calicoctl.commands.ipam_check:check",
            "Check that the records of addresses agree.",
        ),
        "release": ("calicoctl.commands.ipam_release:release", "Release addresses."),
        "show": ("calicoctl.commands.ipam_show:show", "Show who uses which address."),
        "configure": ("calicoctl.commands.ipam_configure:configure", "Change the settings."),
        "split": ("calicoctl.commands.ipam_split:split", "Split a pool into smaller ones."),
        "migrate": (
            "calicoctl.commands.ipam_migrate:migrate",
            "Move the pods of one pool to another.",
        ),
    },
)
