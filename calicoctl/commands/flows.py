"""`flows`: what connected to what in the cluster, and which rule decided.

Tested in `tests/calicoctl/test_flows.py`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from calicoctl.cli import datastore_options, examples
from calicoctl.commands.aggregator import aggregator_options, place_of
from calicoctl.commands.resources.common import options_of

if TYPE_CHECKING:
    from flows.place import Place
    from flows.query import Filter
    from flows.record import Flow


@click.command(
    "flows",
    epilog=examples(
        "calicoctl flows --since 5m",
        "calicoctl flows -f --verdict deny",
        "calicoctl flows --from shop/web --to public --port 443 -o wide",
        "calicoctl flows -n shop --policy shop/db -o json",
    ),
)
@click.option("-f", "--follow", is_flag=True, help="Tell flows as they come, until interrupted.")
@click.option(
    "--from", "source", default="", metavar="END", help="NAMESPACE/NAME, NAMESPACE/ or NAME."
)
@click.option(
    "--to", "destination", default="", metavar="END", help="The same; or public, or private."
)
@click.option("-n", "--namespace", default="", metavar="NS", help="The namespace of either end.")
@click.option("--verdict", type=click.Choice(["allow", "deny"]), help="What became of them.")
@click.option("--policy", default="", metavar="[NS/]NAME", help="A policy of their trace.")
@click.option("--port", type=int, default=0, metavar="PORT", help="The destination's port.")
@click.option("--proto", "-p", default="", metavar="PROTOCOL", help="tcp, udp, icmp and so on.")
@click.option("--reporter", type=click.Choice(["src", "dst"]), help="At which end they were seen.")
@click.option(
    "--since", default=None, metavar="DURATION", help="15m unless it is said; at most 1h."
)
@click.option("--limit", type=click.IntRange(1, 100_000), default=200, help="Flows of a list.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json"]),
    default="table",
    help="A table, a wider one, or one JSON object a line.",
)
@aggregator_options
@datastore_options
def flows(
    follow: bool,
    source: str,
    destination: str,
    namespace: str,
    verdict: str | None,
    policy: str,
    port: int,
    proto: str,
    reporter: str | None,
    since: str | None,
    limit: int,
    output: str,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
    **place: str | None,
) -> None:
    """Show the flows of the whole cluster: both ends, verdict, counts and the rule that decided.

    Asks the aggregator calico-goldmane, which --aggregator names, or else flowLogsGoldmaneServer
    of the FelixConfiguration default. NAME matches where it is a part of the aggregated name.
    """
    from calicoctl.seen import asking
    from calicoctl.seen.wanted import Choice, filters_of, seconds_ago

    filters = filters_of(
        Choice(source, destination, namespace, verdict or "", policy, proto, port, reporter or "")
    )
    start = seconds_ago(since) if since is not None else (0 if follow else -900)
    options = options_of(config, allow_version_mismatch, context)
    address = place["aggregator"] or asyncio.run(asking.address_of(options))
    there = place_of(place, address)
    if follow:
        asyncio.run(_follow(there, filters, start, output))
        return
    seen, total = asyncio.run(asking.listed(there, filters, start, limit))
    _show([one.flow for one in seen], total, output)


def _show(shown: list[Flow], total: int, output: str) -> None:
    from calicoctl.seen import text

    if output == "json":
        for flow in shown:
            click.echo(text.json_line(flow))
        return
    if not shown:
        click.echo("No flows were seen.", err=True)
        return
    click.echo(text.table(shown, wide=output == "wide"), nl=False)
    if left_out := text.summary(len(shown), total, shown):
        click.echo(left_out, err=True)


async def _follow(place: Place, filters: tuple[Filter, ...], start: int, output: str) -> None:
    from calicoctl.seen import asking, text

    async for one in asking.followed(place, filters, start):
        flow = one.flow
        if output == "json":
            click.echo(text.json_line(flow))
        elif output == "wide":
            click.echo("  ".join(text.row(flow, wide=True)))
        else:
            click.echo(text.followed(flow))
