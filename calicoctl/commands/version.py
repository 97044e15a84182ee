"""`version`: of the client, and of the cluster unless `--client`.

Tested in `tests/calicoctl/test_process.py` and `tests/calicoctl/test_version.py`.
"""

from __future__ import annotations

import click

from calicoctl import versions
from calicoctl.cli import datastore_options, examples


@click.command(
    "version",
    epilog=examples(
        "calicoctl version",
        "calicoctl version --client",
    ),
)
@click.option("--client", is_flag=True, help="Only the client's version; no datastore needed.")
@click.option(
    "--poll",
    default="0s",
    metavar="DURATION",
    help="Ask the cluster again so often (1s, 10m, 2h) and show what changed; 0 asks once.",
)
@datastore_options
def version(
    client: bool,
    poll: str,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Show the versions of this client and of the cluster."""
    from calicoctl.commands.resources.common import options_of
    from libcalico import durations
    from libcalico.errors import InvalidValue

    try:
        pause = durations.parse(poll)
    except ValueError:
        raise InvalidValue("--poll", poll, "a duration such as 1s, 10m or 2h") from None
    if pause < 0:
        raise InvalidValue("--poll", poll, "a duration of 0 or more")
    click.echo(versions.client_text(), nl=False)
    if client:
        return
    from calicoctl import session
    from libcalico.process import unlooped

    options = options_of(config, allow_version_mismatch, context)

    async def ask() -> None:
        shown = ""
        async with session.datastore(options, gate=False) as store:
            while True:
                release, kind = await session.cluster(store)
                text = (
                    f"Cluster Version:   {release or 'unknown'}\n"
                    f"Cluster Type:      {kind or 'unknown'}"
                )
                if text != shown:
                    click.echo(text)
                    shown = text
                if not pause:
                    return
                await unlooped.pause(pause)

    unlooped.run(ask())
