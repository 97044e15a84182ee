"""`trace SRC DST`: follow a connection attempt through the nodes of both ends.

Tested in `tests/trace/test_trace_pods.py`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from calicoctl.cli import datastore_options, examples
from calicoctl.commands.resources.common import options_of


@click.command(
    "trace",
    epilog=examples(
        "calicoctl trace shop/web shop/db --port 5432",
        "calicoctl trace shop/web 198.51.100.7 --port 443 --no-send -o json",
    ),
)
@click.argument("source", metavar="SRC")
@click.argument("destination", metavar="DST")
@click.option(
    "--proto", "--protocol", "-p", default=None, metavar="PROTOCOL", help="tcp, udp or icmp; TCP."
)
@click.option("--port", type=click.IntRange(1, 65535), default=None, metavar="PORT",
              help="Destination port; TCP and UDP need it.")  # fmt: skip
@click.option(
    "--ip-version",
    type=click.Choice(["4", "6"]),
    default=None,
    help="The family, where both ends have both; IPv4 unless it is said.",
)
@click.option("-n", "--namespace", default="default", metavar="NS",
              help="Namespace of pods that are named without one.")  # fmt: skip
@click.option(
    "--via",
    multiple=True,
    metavar="NODE=COMMAND",
    help="The command that runs a program on a node, such as node2='ssh root@node2'. Repeatable.",
)
@click.option(
    "--wait",
    type=click.FloatRange(0, 600),
    default=1.0,
    metavar="SECONDS",
    help="Wait so long for an attempt of the pod's own before one is sent; 1 by default.",
)
@click.option("--no-send", is_flag=True, help="Send nothing: only follow what the pod itself does.")
@click.option("--size", type=click.IntRange(0, 65000), default=0, metavar="BYTES",
              help="Payload of the attempt; its packets may not be fragmented.")  # fmt: skip
@click.option("--timeout", type=click.FloatRange(0.1, 600), default=5.0, metavar="SECONDS",
              help="Seconds that the attempt may take; 5 by default.")  # fmt: skip
@click.option("--count", type=click.IntRange(1, 100_000), default=2000, metavar="N",
              help="Events that a node tells at most; 2000 by default.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(1, 600), default=30.0, metavar="SECONDS",
              help="Seconds that a node watches at most; 30 by default.")  # fmt: skip
@click.option(
    "--node-output",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Lines of `calicoctl node trace` to read in place of asking. Repeatable.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Form of the answer: text for people, or one JSON object.",
)
@datastore_options
def trace(
    source: str,
    destination: str,
    proto: str | None,
    port: int | None,
    ip_version: str | None,
    namespace: str,
    via: tuple[str, ...],
    wait: float,
    no_send: bool,
    size: int,
    timeout: float,
    count: int,
    seconds: float,
    node_output: tuple[Path, ...],
    output: str,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Follow a connection attempt from SRC to DST and say where, and why, it ends.

    SRC and DST are each NAMESPACE/POD, a pod's name, an address or node:NAME. The node of each is
    asked: this machine, and others by --via. Where the pod does not connect by itself, an attempt
    is sent from its namespace. Each rule is named with its policy, each hop with the route and the
    BGP peer that announced it, each drop with the kernel's reason. Exit status 0 whether the
    connection was made or not.
    """
    import json

    from calicoctl.explaining import reading
    from calicoctl.tracing import asking, text
    from calicoctl.tracing.nodes import Bounds

    query = asking.TraceQuery(
        source,
        destination,
        namespace or "default",
        proto,
        port,
        None if ip_version is None else int(ip_version),
        None if no_send else wait,
        via,
        Bounds(count, seconds, size, timeout),
    )
    world = asyncio.run(reading.read_world(options_of(config, allow_version_mismatch, context)))
    result = asyncio.run(asking.trace(world, query, node_output))
    if output == "json":
        click.echo(json.dumps(text.as_tree(result.story, result.cause, result.titles), indent=2))
    else:
        click.echo(text.as_text(result.story, result.cause, result.titles), nl=False)
