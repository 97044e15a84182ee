"""`explain SRC DST`: who decides about a packet, and where it stands in the kernel.

Tested in `tests/calicoctl/test_explain.py` on a real etcd.
"""

from __future__ import annotations

import asyncio

import click

from calicoctl.cli import DIFFERS, EXIT_CODE, datastore_options, examples
from calicoctl.commands.resources.common import echo, options_of
from libcalico.errors import MuslinError


@click.command(
    "flow",
    epilog=examples(
        "calicoctl explain shop/web-1 shop/db-0 --proto tcp --port 5432",
        "calicoctl explain node:node1 10.65.0.7 --port 80",
        "# As root on the node of one of the two: does the kernel do so?",
        "calicoctl explain shop/web-1 shop/db-0 --port 5432 --live",
    ),
)
@click.argument("source", metavar="SRC")
@click.argument("destination", metavar="DST")
@click.option(
    "--proto",
    "-p",
    default=None,
    metavar="PROTOCOL",
    help="tcp, udp, icmp, icmpv6, sctp, udplite or a number; without it, all protocols.",
)
@click.option(
    "--port",
    type=int,
    default=None,
    metavar="PORT",
    help="Destination port (of TCP unless --proto says else); without it, for all ports.",
)
@click.option(
    "--source-port",
    type=int,
    default=None,
    metavar="PORT",
    help="Source port; without it, for all that rules name, else the usual ones.",
)
@click.option("--icmp-type", type=int, default=None, metavar="N", help="ICMP type; 8 or 128.")
@click.option("--icmp-code", type=int, default=None, metavar="N", help="ICMP code; 0.")
@click.option(
    "--ip-version",
    type=click.Choice(["4", "6"]),
    default=None,
    help="The family, where both ends have both; IPv4 unless it is said.",
)
@click.option(
    "-n",
    "--namespace",
    default="default",
    metavar="NS",
    help="Namespace of pods that are named without one.",
)
@click.option(
    "--live",
    is_flag=True,
    help="Compare with felix and the kernel of this node, as root; 1 if they differ.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Form of the answer: text for people, or one JSON object.",
)
@EXIT_CODE
@datastore_options
def flow(
    source: str,
    destination: str,
    proto: str | None,
    port: int | None,
    source_port: int | None,
    icmp_type: int | None,
    icmp_code: int | None,
    ip_version: str | None,
    namespace: str,
    live: bool,
    output: str,
    exit_code: bool,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Tell who decides about a packet from SRC to DST: tier, policy, rule, chain.

    SRC and DST are each NAMESPACE/POD, a pod's name, an address, node:NAME, or the name of a
    host endpoint (hep:NAME where that may be taken for a pod). Exit status 0 whether the packet is
    allowed or denied, unless --exit-code asks for 2 if any of it is denied; 1 where --live finds
    that the node differs from the datastore.
    """
    from calicoctl.explaining import asking, reading

    options = options_of(config, allow_version_mismatch, context)
    query = asking.FlowQuery(
        source,
        destination,
        namespace or "default",
        proto,
        port,
        source_port,
        (icmp_type, icmp_code),
        None if ip_version is None else int(ip_version),
    )
    world = asyncio.run(reading.read_world(options))
    result = asking.ask(world, query)
    node_answer = asyncio.run(asking.ask_node(result)) if live else None
    if output == "json":
        click.echo(asking.as_json(result, node_answer))
    else:
        echo(asking.as_text(result, node_answer), "verdicts")
    if node_answer is not None and (complaint := asking.complaint(node_answer)):
        raise MuslinError(complaint)
    if exit_code and not all(answer.explanation.allowed for answer in result.answers):
        raise click.exceptions.Exit(DIFFERS)
