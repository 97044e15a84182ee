"""`policy plan -f FILE`: which flows would change verdict if FILE were applied.

Tested in `tests/calicoctl/test_explain.py` on a real etcd.
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
        "calicoctl policy plan -f policy.yaml",
        "calicoctl policy plan -f policy.yaml --delete -o json",
        "calicoctl policy plan -f policy.yaml --exit-code && calicoctl apply -f policy.yaml",
    ),
)
@file_options
@click.option("--delete", is_flag=True, help="As if the resources of -f were deleted, not applied.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Stop comparing after so many seconds and tell what was found by then.",
)
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
    timeout: float,
    output: str,
    exit_code: bool,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Tell which flows between pods, and to and from other addresses, would change verdict.

    Nothing is stored. Flows are told by the labels of their ends. Exit status 0 whether anything
    would change, unless --exit-code asks for 2 then; 1 when the plan is not complete.
    """
    from calicoctl.checked import planned_resources
    from calicoctl.explaining import planning, reading
    from libcalico.process.progress import Progress

    documents = documents_of(required(filename), recursive, skip_empty)
    resources = planned_resources(documents, namespace)
    options = options_of(config, allow_version_mismatch, context)
    with Progress("policy plan") as progress:
        progress.begin("reading the datastore")
        world = asyncio.run(reading.read_world(options))
        progress.begin("comparing pairs of classes")
        policy_plan = planning.plan_of(
            world, resources, delete=delete, timeout=timeout, progress=progress
        )
    if output == "json":
        click.echo(planning.as_json(policy_plan), nl=False)
    else:
        echo(planning.as_text(policy_plan), "verdicts")
    if not policy_plan.report.whole:
        raise MuslinError(planning.incomplete(policy_plan))
    if exit_code and policy_plan.report.groups:
        raise click.exceptions.Exit(DIFFERS)
