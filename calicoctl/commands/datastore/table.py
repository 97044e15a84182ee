"""`datastore`: the table of its commands; each lies in a module of its own.

Tested in tests/calicoctl/test_completion.py.
"""

from __future__ import annotations

from calicoctl.cli import examples, lazy_group

migrate = lazy_group(
    "migrate",
    "Lock the datastore, or move what it holds to another one.",
    {
        "export": (
            "calicoctl.commands.datastore.export:export",
            "Write what the datastore holds to standard output.",
        ),
        "import": (
            "calicoctl.commands.datastore.import_:import_",
            "Store what `export` wrote.",
        ),
        "lock": ("calicoctl.commands.datastore.lock:lock", "Stop everything that changes it."),
        "unlock": ("calicoctl.commands.datastore.lock:unlock", "Go on after a lock."),
    },
)

datastore = lazy_group(
    "datastore",
    "Move or lock the datastore.",
    {
        "migrate": (
            "calicoctl.commands.datastore.table:migrate",
            "Lock the datastore, or move what it holds to another one.",
        ),
        "migrate-policy-names": (
            "calicoctl.commands.datastore.policies:migrate_policy_names",
            "Rename the keys of policies that an older release wrote.",
        ),
    },
)
migrate.epilog = examples(
    "calicoctl datastore migrate lock",
    "calicoctl datastore migrate export > export.yaml",
)
datastore.epilog = examples(
    "calicoctl datastore migrate export > export.yaml",
    "calicoctl datastore migrate-policy-names",
)
