"""`node bgp drain|undrain NODE`: routes of a node as the last choice (RFC 8326), and back.

Tested in `tests/calicoctl/test_bgp_plan.py` on a real etcd.
"""

from __future__ import annotations

import asyncio

import click
from msgspec.structs import replace

from calicoctl.cli import completed_by, datastore_options, examples
from calicoctl.client import Client
from calicoctl.commands.resources.common import options_of
from calicoctl.session import Options, datastore
from libcalico.model.keys import ResourceKey
from libcalico.model.kinds import Resource


@click.command(
    "drain",
    epilog=examples(
        "calicoctl node bgp drain node1",
    ),
)
@click.argument("node", shell_complete=completed_by("of_nodes"))
@datastore_options
def drain(node: str, config: str | None, context: str, allow_version_mismatch: bool) -> None:
    """Make the routes of NODE the last choice everywhere, before work on it.

    Its sessions stay up, and its pods reachable where no other node has their routes. Lasts until
    `undrain`, also over a restart.
    """
    done = asyncio.run(_mark(node, True, options_of(config, allow_version_mismatch, context)))
    click.echo(
        f"{node} drains: its routes are the last choice" if done else f"{node} drains already"
    )


@click.command(
    "undrain",
    epilog=examples(
        "calicoctl node bgp undrain node1",
    ),
)
@click.argument("node", shell_complete=completed_by("of_nodes"))
@datastore_options
def undrain(node: str, config: str | None, context: str, allow_version_mismatch: bool) -> None:
    """Make the routes of NODE what they were before `drain`."""
    done = asyncio.run(_mark(node, False, options_of(config, allow_version_mismatch, context)))
    click.echo(f"{node} drains no more" if done else f"{node} does not drain")


async def _mark(node: str, draining: bool, options: Options) -> bool:
    """Set or take away the mark of a drain; returns whether that changed anything."""
    from bgp.cluster.nodes import DRAIN

    changed = False

    def change(stored: Resource) -> Resource:
        nonlocal changed
        metadata = stored.metadata
        changed = (metadata.annotations.get(DRAIN) == "true") != draining
        annotations = {name: one for name, one in metadata.annotations.items() if name != DRAIN}
        if draining:
            annotations[DRAIN] = "true"
        return replace(stored, metadata=replace(metadata, annotations=annotations))

    async with datastore(options) as store:
        await Client(store).modify(ResourceKey("Node", node), change, "Update")
    return changed
