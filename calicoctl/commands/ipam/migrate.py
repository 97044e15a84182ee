"""`ipam migrate`: move the pods of one pool to another, node by node.

Run it again and again while pods are restarted: it goes on where it was, on any machine.
This is also how a cluster gets another block size: a new pool with that size, and a move.
Tested in `tests/calicoctl/test_migrate.py` on a real etcd.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import click

from calicoctl import borders
from calicoctl.cli import completed_by, datastore_options, examples
from calicoctl.commands.resources.common import options_of
from calicoctl.session import Options, datastore
from ipam.admin import migrate as moving
from ipam.admin.migrate_plan import NodeState, Plan
from libcalico import durations
from libcalico.datastore.interface import Datastore, Entry
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model.keys import ResourceKey

SETTLE_SECONDS = 0.5
POLL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Migration:
    """What the operator asked for."""

    old: str
    new: str
    dry_run: bool
    node: str
    delete: bool
    wait: float


@click.command(
    "migrate",
    epilog=examples(
        "calicoctl ipam migrate --from old-pool --to new-pool --dry-run",
        "calicoctl ipam migrate --from old-pool --to new-pool --wait 10m --delete",
    ),
)
@click.option(
    "--from",
    "old",
    required=True,
    shell_complete=completed_by("of_pools"),
    metavar="POOL",
    help="The pool to empty.",
)
@click.option(
    "--to",
    "new",
    required=True,
    shell_complete=completed_by("of_pools"),
    metavar="POOL",
    help="The pool to fill.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option(
    "--node",
    default="",
    shell_complete=completed_by("of_nodes"),
    metavar="NODE",
    help="Look at this node only.",
)
@click.option("--delete", is_flag=True, help="Delete the old pool once it is empty.")
@click.option("--abort", is_flag=True, help="Enable the old pool again; moved pods stay.")
@click.option(
    "--wait",
    default="0s",
    metavar="DURATION",
    help="Wait so long (such as 10m) for the pods to be restarted; exit 1 if some are left.",
)
@datastore_options
def migrate(
    old: str,
    new: str,
    dry_run: bool,
    node: str,
    delete: bool,
    abort: bool,
    wait: str,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Move the pods of pool --from to pool --to, node by node.

    The old pool gives out nothing more; each node gets blocks of the new one; the pods that
    must be restarted are listed; blocks that became empty are given back. Run it again after
    restarting pods, until nothing is left.
    """
    options = options_of(config, allow_version_mismatch, context)
    if abort and (dry_run or delete):
        raise click.UsageError("--abort goes with neither --dry-run nor --delete")
    migration = Migration(old, new, dry_run, node, delete, _seconds(wait))
    asyncio.run(_abort(migration, options) if abort else _migrate(migration, options))


def _seconds(text: str) -> float:
    try:
        return durations.parse(text)
    except ValueError:
        raise InvalidValue("--wait", text, "a duration such as 90s or 10m") from None


async def _abort(migration: Migration, options: Options) -> None:
    async with datastore(options) as store:
        old = await moving.find(store, migration.old)
        going = moving.target_of(old.value)
        # By name first: the new pool may be gone.
        if going not in ("", migration.new):
            new = await moving.find(store, migration.new)
            if going != new.value.metadata.name:
                raise MuslinError(f"{old.key} is being moved to {going}, not to {migration.new}")
        restored = await moving.undo(store, old)
    state = "disabled, as it was before" if restored.value.spec.disabled else "enabled again"
    click.echo(
        f"The move is taken back: {migration.old} is {state}. Pods that moved stay in {going}."
    )


async def _migrate(migration: Migration, options: Options) -> None:
    async with datastore(options) as store:
        old, new = await moving.find(store, migration.old), await moving.find(store, migration.new)
        state = await moving.look(store, old, new)
        if state.problems:
            raise MuslinError(
                f"{migration.old} cannot move to {migration.new}: " + "; ".join(state.problems)
            )
        if migration.node and all(one.node != migration.node for one in state.nodes):
            click.echo(f"Node {migration.node} holds nothing of {old.value.metadata.name}.")
        for warning in state.warnings:
            click.echo(f"WARNING: {warning}")
        if migration.dry_run:
            _tell(state, old, new, migration)
            _would(state, old, migration)
            return
        state = await _step(store, migration, old, new, state)
        deadline = time.monotonic() + migration.wait
        while state.remaining and time.monotonic() < deadline:
            await asyncio.sleep(min(POLL_SECONDS, max(0.0, deadline - time.monotonic())))
            left = state.remaining
            state = await _again(store, migration, old, new)
            if state.remaining != left:
                click.echo(f"{state.remaining} addresses of {old.value.metadata.name} are left.")
        _tell(state, old, new, migration)
        await _finish(store, state, migration)


async def _step(
    store: Datastore, migration: Migration, old: Entry, new: Entry, state: Plan
) -> Plan:
    """Disable, claim in advance, give back what is empty; returns the state after it."""
    name = old.value.metadata.name
    begun = await moving.begin(store, old, new)
    if begun is not old:
        click.echo(f"Pool {name} is disabled: from now on {migration.new} serves new pods.")
        # An allocation that was on its way lands before we look.
        await asyncio.sleep(SETTLE_SECONDS)
        state = await moving.look(store, begun, new)
    claiming = [node for node in state.nodes if node.claims and migration.node in ("", node.node)]
    failed = await moving.prepare(store, new, claiming)
    for node in claiming:
        if node.node in failed:
            click.echo(f"WARNING: blocks for {node.node} were not all claimed: {failed[node.node]}")
        else:
            click.echo(f"Claimed {node.claims} block(s) of {migration.new} for {node.node}.")
    return await _again(store, migration, begun, new)


async def _again(store: Datastore, migration: Migration, old: Entry, new: Entry) -> Plan:
    state = await moving.look(store, old, new)
    if gone := await moving.give_back(store, state, migration.node):
        click.echo(f"Gave back {gone} empty block(s) of {old.value.metadata.name}.")
        state = await moving.look(store, old, new)
    return state


def _tell(state: Plan, old: Entry, new: Entry, migration: Migration) -> None:
    nodes = [node for node in state.nodes if migration.node in ("", node.node)]
    if not nodes:
        return
    first, second = old.value.metadata.name.upper(), new.value.metadata.name.upper()
    headings = ("NODE", "PODS", "OTHERS", "UNUSED", f"BLOCKS IN {first}", f"BLOCKS IN {second}")
    click.echo(borders.render(headings, [_row(node) for node in nodes]), nl=False)
    for node in nodes:
        if node.pods:
            click.echo(f"Pods to restart on {node.node}:")
        for allocation in node.pods:
            click.echo(f"  {allocation.who}  {allocation.address}")
        for allocation in node.allocations:
            if not allocation.restart:
                click.echo(f"  (not a pod: {allocation.who}, {allocation.address})")
        if node.leaked:
            unused = ", ".join(node.leaked)
            click.echo(f"  (no workload uses: {unused}; see calicoctl ipam check)")


def _row(node: NodeState) -> list[str]:
    others = len(node.allocations) - len(node.pods)
    counts = (len(node.pods), others, len(node.leaked), node.old_blocks, node.new_blocks)
    return [node.node or "<none>", *map(str, counts)]


def _would(state: Plan, old: Entry, migration: Migration) -> None:
    pods = sum(len(node.pods) for node in state.nodes)
    name = old.value.metadata.name
    steps = []
    if not old.value.spec.disabled or not moving.target_of(old.value):
        steps.append(f"disable {name} for new addresses")
    if claims := sum(node.claims for node in state.nodes):
        steps.append(f"claim {claims} block(s) of {migration.new}")
    if gone := len(state.empty) + len(state.ownerless):
        steps.append(f"give back {gone} empty block(s) of {name}")
    steps.append(f"leave {pods} pod(s) to be restarted")
    if migration.delete and not state.remaining:
        steps.append(f"delete {name}")
    click.echo("Dry run, nothing was changed. A run would: " + "; ".join(steps) + ".")


async def _finish(store: Datastore, state: Plan, migration: Migration) -> None:
    if state.remaining:
        pods = sum(len(node.pods) for node in state.nodes)
        rest = state.remaining - pods
        summary = f"{pods} pod(s) still hold addresses of {migration.old}"
        summary += f", and {rest} other address(es) are allocated" if rest else ""
        if migration.wait:
            raise MuslinError(
                f"{summary} after {migration.wait:g} s; run the command again to go on"
            )
        click.echo(f"{summary}. Restart them node by node, then run this command again.")
        return
    if not migration.delete:
        click.echo(
            f"Nothing is left in {migration.old}. Run again with --delete to delete the pool,"
            f" or keep it disabled."
        )
        return
    from calicoctl.client import Client

    entry = await moving.find(store, migration.old)
    assert isinstance(entry.key, ResourceKey)
    await Client(store).delete(entry.key)
    click.echo(f"Nothing is left in {migration.old}: the pool is deleted.")
