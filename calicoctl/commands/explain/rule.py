"""`explain rule CHAIN[:N]`: which policy and rule a rule of the kernel stands for.

Tested in `tests/calicoctl/test_explain.py` on a real etcd.
"""

from __future__ import annotations

import asyncio

import click

from calicoctl.cli import datastore_options, examples
from calicoctl.commands.resources.common import options_of


@click.command(
    "rule",
    epilog=examples(
        "calicoctl explain rule cali-pi-np/shop/web:3",
        "calicoctl explain rule filter-cali-tw-cali12ab34cd",
    ),
)
@click.argument("chain", metavar="CHAIN[:N]")
@click.option(
    "--ip-version",
    type=click.Choice(["4", "6"]),
    default="4",
    help="The family whose rules are meant: a rule of one family only has no place in the other.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Form of the answer: text for people, or JSON.",
)
@datastore_options
def rule(
    chain: str,
    ip_version: str,
    output: str,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Tell what a chain of the kernel stands for, and rule N of it (from 1).

    CHAIN as iptables or nft prints it, such as cali-pi-np/shop/web:3 or
    filter-cali-tw-cali12ab34cd.
    """
    import json

    from calicoctl.explaining import reading, text
    from felix.explain import chain_meaning, reverse

    name, number = reverse.split_number(chain)
    world = asyncio.run(reading.read_world(options_of(config, allow_version_mismatch, context)))
    rule_meanings = reverse.meanings(world, name, int(ip_version))
    if number is not None:
        rule_meanings = [chain_meaning.only(each, number) for each in rule_meanings]
    if output == "json":
        click.echo(json.dumps([chain_meaning.as_tree(each) for each in rule_meanings], indent=2))
    else:
        click.echo(text.meaning_text(rule_meanings), nl=False)
