"""From documents to resources that may be written: completed, checked, and told about.

Invariant CTL-2: every document of a command is checked before the first key is written.
Tested in `tests/calicoctl/test_validate.py` and `tests/calicoctl/test_commands.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec

from calicoctl.documents import InputDocument
from calicoctl.preparing import prepare
from calicoctl.unenforced import notices, refused
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model.base.meta import API_VERSION
from libcalico.model.kinds import Resource
from libcalico.model.validation.validate import problems

ACCEPT_UNENFORCED = click.option(
    "--accept-unenforced", is_flag=True, help="Store also what this release does not enforce."
)


class Prepared(msgspec.Struct, frozen=True):
    """A resource ready to write; `legacy` when it came from a first-generation document."""

    resource: Resource
    legacy: bool = False


def complaints(resource: Resource, accept_unenforced: bool) -> list[InvalidValue]:
    """Everything that speaks against storing a resource."""
    wrong = problems(resource) + ([] if accept_unenforced else refused(resource))
    if resource.kind.startswith("BGP"):
        from calicoctl.no_effect import no_effect  # of what BGP's kinds say alone

        wrong += no_effect(resource)
    return wrong


def prepared_all(
    documents: Sequence[InputDocument], namespace: str, accept_unenforced: bool
) -> tuple[list[Prepared], list[str]]:
    """All resources ready to write, or all that is wrong with them (CTL-2).

    What is fine but not enforced is named on standard error.
    """
    prepared, errors = [], []
    if any(document.legacy for document in documents):
        click.echo(f"documents of apiVersion v1 are read as {API_VERSION}", err=True)
    for document in documents:
        try:
            resource = prepare(document.resource, namespace)
        except MuslinError as error:
            errors.append(f"{document.place()}: {error}")
            continue
        prepared.append(Prepared(resource, document.legacy))
        wrong = complaints(resource, accept_unenforced)
        errors += [f"{document.place(one.field)}: {one}" for one in wrong]
        for field, notice in notices(resource):
            name = f"{document.kind}({document.name})"
            click.echo(
                f"{document.place(field)}: {name}: {field}: not enforced: {notice}", err=True
            )
    return prepared, errors


def planned_resources(documents: Sequence[InputDocument], namespace: str) -> list[Resource]:
    """The resources that a plan takes as written; nothing is stored.

    Raises MuslinError with all that is wrong with them.
    """
    prepared, errors = prepared_all(documents, namespace, accept_unenforced=True)
    if errors:
        raise MuslinError("\n".join(errors))
    return [one.resource for one in prepared]
