"""`node bgp plan -f FILE`: which BGP sessions would change if FILE were applied.

Tested in `tests/calicoctl/test_bgp_plan.py` on a real etcd.
"""

from __future__ import annotations

import asyncio

import click

from calicoctl.cli import DIFFERS, EXIT_CODE, datastore_options, examples, file_options
from calicoctl.commands.resources.common import documents_of, echo, options_of, required
from libcalico.errors import MuslinError


@click.command(
    "plan",
    epilog=examples(
        "calicoctl node bgp plan -f peers.yaml",
        "calicoctl node bgp plan -f peers.yaml --delete -o json",
    ),
)
@file_options
@click.option("--delete", is_flag=True, help="As if the resources of -f were deleted, not applied.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Form of the plan: text for people, or one JSON object.",
)
@EXIT_CODE
@datastore_options
def plan(
    filename: str | None,
    recursive: bool,
    skip_empty: bool,
    namespace: str,
    delete: bool,
    output: str,
    exit_code: bool,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Tell which sessions of which nodes would be added, removed, reset or adjusted.

    Nothing is stored. Passwords are taken to be where they are said to be. Exit status 0
    whether anything would change, unless --exit-code asks for 2 then.
    """
    from calicoctl.checked import planned_resources
    from calicoctl.routing import planning, reading
    from libcalico.process.progress import Progress

    documents = documents_of(required(filename), recursive, skip_empty)
    resources = planned_resources(documents, namespace)
    options = options_of(config, allow_version_mismatch, context)
    with Progress("node bgp plan") as progress:
        progress.begin("reading the datastore")
        view, unreadable = asyncio.run(reading.read_view(options))
        if unreadable:
            raise MuslinError("the plan would not be complete: " + "; ".join(unreadable))
        progress.begin("comparing sessions")
        changes = planning.plan_of(view, resources, delete=delete)
    if output == "json":
        click.echo(planning.as_json(changes))
    else:
        echo(planning.as_text(changes), "sessions")
    if exit_code and any(node.sessions or node.refused for node in changes):
        raise click.exceptions.Exit(DIFFERS)
