"""`version`: of the client, and of the cluster unless `--client`."""

from __future__ import annotations

import click

from calicoctl import versions
from calicoctl.cli import datastore_options


@click.command("version")
@click.option("--client", is_flag=True, help="Only the client's version; no datastore needed.")
@datastore_options
def version(client: bool, config: str | None, context: str, allow_version_mismatch: bool) -> None:
    """Show the versions of this client and of the cluster."""
    click.echo(f"Client Version:    {versions.CALICO}")
    click.echo(f"Git commit:        muslin-{versions.MUSLIN}")
    if client:
        return
    import asyncio

    from calicoctl import session

    async def ask() -> tuple[str, str]:
        async with session.datastore(session.Options(config), gate=False) as store:
            return await session.cluster(store)

    release, kind = asyncio.run(ask())
    click.echo(f"Cluster Version:   {release or 'unknown'}")
    click.echo(f"Cluster Type:      {kind or 'unknown'}")
