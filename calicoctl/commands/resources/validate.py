"""`validate`: every check that `apply` makes of a file, with no datastore at hand.

Tested in `tests/calicoctl/test_validate.py`.
"""

from __future__ import annotations

import click

from calicoctl.checked import ACCEPT_UNENFORCED, prepared_all
from calicoctl.cli import common_options, examples, file_options
from calicoctl.commands.resources.common import documents_of, report, required
from calicoctl.outcome import Outcome


@click.command(
    "validate",
    epilog=examples(
        "calicoctl validate -f policy.yaml",
        "calicoctl validate -f policies/ -R",
    ),
)
@file_options
@ACCEPT_UNENFORCED
@common_options
def validate(
    filename: str | None,
    recursive: bool,
    skip_empty: bool,
    namespace: str,
    accept_unenforced: bool,
) -> None:
    """Check resources from a file or from standard input; nothing is stored."""
    documents = documents_of(required(filename), recursive, skip_empty)
    prepared, errors = prepared_all(documents, namespace, accept_unenforced)
    good = len(prepared) if not errors else 0
    report(Outcome("validate", [one.kind for one in documents], good, errors))
