"""`datastore`: the table of its commands; each lies in a module of its own."""

from __future__ import annotations

from calicoctl.cli import lazy_group

migrate = lazy_group(
    "migrate",
    "Lock the datastore, or move what it holds to another one.",
    {
        "lock": ("calicoctl.commands.datastore_lock:lock", "Stop everything that changes it."),
        "unlock": ("calicoctl.commands.datastore_lock:unlock", "Go on after a lock."),
    },
)

datastore = lazy_group(
    "datastore",
    "Move or lock the datastore.",
    {
        "migrate": (
            "calicoctl.commands.datastore:migrate",
            "Lock the datastore, or move what it holds to another one.",
        ),
    },
)
