"""`policy recommend -n NS`: the smallest policies that allow what flows were seen.

Tested in `tests/calicoctl/test_recommend.py` on a real etcd.
"""

from __future__ import annotations

import asyncio
import time
from ipaddress import ip_network

import click

from calicoctl.cli import datastore_options, examples
from calicoctl.commands.aggregator import aggregator_options, place_of
from calicoctl.commands.resources.common import options_of
from libcalico.errors import InvalidValue, MuslinError


@click.command(
    "recommend",
    epilog=examples(
        "calicoctl policy recommend -n shop --from flows.jsonl",
        "calicoctl policy recommend -n shop --aggregator goldmane:7443 --staged",
    ),
)
@click.option("-n", "--namespace", required=True, metavar="NS", help="The namespace to write for.")
@click.option(
    "--from",
    "source",
    default=None,
    metavar="FILE",
    help="Flows from a file of JSON lines (- is standard input), not from the aggregator.",
)
@click.option(
    "--since",
    type=click.IntRange(min=1),
    default=None,
    metavar="SECONDS",
    help="Of the aggregator's flows, those of the last so many seconds; without it, all.",
)
@click.option("--kubernetes", is_flag=True, help="Policies of networking.k8s.io/v1.")
@click.option("--staged", is_flag=True, help="Staged policies: stored, and in force nowhere.")
@click.option("--allow-public", is_flag=True, help="Allow all public addresses where one was seen.")
@click.option(
    "--allow-private",
    is_flag=True,
    help="Allow all private addresses outside pools where one that nothing names was seen.",
)
@click.option(
    "--network",
    "networks",
    multiple=True,
    metavar="CIDR",
    help="What to allow for addresses that nothing names, instead of all; may be repeated.",
)
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
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    help="YAML for `calicoctl apply`, what is to be known on standard error; or one JSON object.",
)
@aggregator_options
@datastore_options
def recommend(
    namespace: str,
    source: str | None,
    since: int | None,
    kubernetes: bool,
    staged: bool,
    allow_public: bool,
    allow_private: bool,
    networks: tuple[str, ...],
    timeout: float,
    output: str,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
    **place: str | None,
) -> None:
    """Write the smallest policies that allow what the workloads of a namespace were seen to do.

    Each group of pods gets one policy that closes both directions but for what was seen. The
    proposal is held against the datastore at once: standard error tells that nothing seen would be
    denied, and what would be from now on. Nothing is stored. A flow says of an address that nothing
    names only whether it is public: such connections are left out unless you choose.
    """
    from calicoctl.explaining import planning, reading
    from calicoctl.recommending import sources, text
    from felix.explain.recommend.peers import Choices
    from felix.explain.recommend.proposal import Wanted, propose

    choices = Choices(allow_public, allow_private, tuple(map(_network, networks)))
    if source is not None:
        flows = sources.from_file(source)
    elif place["aggregator"] is not None:
        there = place_of(place)
        flows = asyncio.run(sources.from_aggregator(there, namespace, since or 0))
    else:
        raise InvalidValue("--from", "", "name a file of flows, or an --aggregator HOST:PORT")
    world = asyncio.run(reading.read_world(options_of(config, allow_version_mismatch, context)))
    began = time.monotonic()
    asked = Wanted(namespace, choices, kubernetes, staged)
    proposal = propose(world, flows, asked, lambda: time.monotonic() - began > timeout)
    plan = planning.PolicyPlan(proposal.plan, (), time.monotonic() - began)
    if output == "json":
        click.echo(text.as_json(proposal), nl=False)
    else:
        click.echo(text.as_yaml(proposal), nl=False)
        for line in text.remarks(proposal):
            click.echo(line, err=True)
        click.echo("What it forbids and allows from now on:", err=True)
        click.echo(planning.as_text(plan), nl=False, err=True)
    if proposal.proof.denied:
        raise MuslinError("the proposal would deny connections that were seen; do not apply it")
    if not proposal.plan.whole:
        raise MuslinError(planning.incomplete(plan))


def _network(text: str) -> str:
    try:
        return str(ip_network(text))
    except ValueError as error:
        raise InvalidValue("--network", text, f"must be a CIDR: {error}") from None
