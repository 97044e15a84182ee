"""`validate`: every check that `apply` makes of a file, with no datastore at hand.

Tested in `tests/calicoctl/test_validate.py`.
"""

from __future__ import annotations

import click

from calicoctl.cli import file_options
from calicoctl.commands.common import documents_of
from calicoctl.commands.write import prepared_all
from calicoctl.outcome import Outcome
from libcalico.errors import MuslinError


@click.command("validate")
@file_options
@click.option(
    "--accept-unenforced", is_flag=True, help="Pass also what this release does not enforce."
)
def validate(
    filename: str | None,
    recursive: bool,
    skip_empty: bool,
    namespace: str,
    accept_unenforced: bool,
) -> None:
    """Check resources from a file or from standard input; nothing is stored."""
    if filename is None:
        raise click.UsageError("--filename is required")
    documents = documents_of(filename, recursive, skip_empty)
    prepared, errors = prepared_all(documents, namespace, accept_unenforced)
    good = len(prepared) if not errors else 0
    said, error = Outcome("validate", [one.kind for one in documents], good, errors).sentences()
    if said:
        click.echo(said)
    if error:
        raise MuslinError(error)
