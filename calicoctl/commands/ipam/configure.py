"""`ipam configure`: change the settings of the allocator; what is not named stays.

Rules and texts as Calico's (docs/reference/data-model.md#ipam-configuration, #calicoctls-commands).
Tested in `tests/calicoctl/test_ipam.py`.
"""

from __future__ import annotations

import asyncio

import click
from msgspec.structs import replace

from calicoctl.cli import datastore_options, examples
from calicoctl.commands.resources.common import options_of
from calicoctl.session import Options, datastore
from ipam.admin.library import change_config
from libcalico.errors import InvalidValue, MuslinError

TRUE = ("1", "t", "true")
FALSE = ("0", "f", "false")


@click.command(
    "configure",
    epilog=examples(
        "calicoctl ipam configure --strictaffinity true",
        "calicoctl ipam configure --max-blocks-per-host 8",
    ),
)
@click.option(
    "--strictaffinity",
    "strict",
    default=None,
    metavar="true|false",
    help="Whether a node may use only addresses of its own blocks, never borrowed ones.",
)
@click.option(
    "--max-blocks-per-host",
    "blocks",
    default=None,
    metavar="NUMBER",
    help="How many blocks a node may have; 0: as many as the allocator allows.",
)
@click.option(
    "--kubevirt-ip-persistence",
    "persistence",
    default=None,
    metavar="Enabled|Disabled",
    help="Whether virtual machines keep their address over restarts.",
)
@click.option(
    "--ip-cooldown-seconds",
    "cooldown",
    default=None,
    metavar="NUMBER",
    help="How long a released address rests before it is given out again, 0 to 1200.",
)
@datastore_options
def configure(
    strict: str | None,
    blocks: str | None,
    persistence: str | None,
    cooldown: str | None,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Change the settings of the allocator."""
    options = options_of(config, allow_version_mismatch, context)
    changes: dict[str, object] = {}
    settings: dict[str, str] = {}
    if strict is not None:
        changes["strict_affinity"] = _truth(strict)
        settings["StrictAffinity"] = str(changes["strict_affinity"]).lower()
    if blocks is not None:
        changes["maxBlocksPerHost"] = _number("--max-blocks-per-host", blocks)
        settings["MaxBlocksPerHost"] = str(changes["maxBlocksPerHost"])
    if persistence is not None:
        if persistence not in ("Enabled", "Disabled"):
            raise InvalidValue("--kubevirt-ip-persistence", persistence, "Enabled or Disabled")
        changes["kubeVirtVMAddressPersistence"] = persistence
        settings["KubeVirtVMAddressPersistence"] = persistence
    if cooldown is not None:
        changes["ipCooldownSeconds"] = _number("--ip-cooldown-seconds", cooldown)
        settings["IPCooldownSeconds"] = str(changes["ipCooldownSeconds"])
    if not changes:
        raise MuslinError("at least one configuration option must be specified")
    asyncio.run(_configure(changes, options))
    for name, value in settings.items():
        click.echo(f"Successfully set {name} to: {value}")


async def _configure(changes: dict[str, object], options: Options) -> None:
    async with datastore(options) as store:
        await change_config(store, lambda stored: replace(stored, **changes))


def _truth(text: str) -> bool:
    if text.lower() in (*TRUE, *FALSE):
        return text.lower() in TRUE
    raise InvalidValue("--strictaffinity", text, "true or false")


def _number(option: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidValue(option, text, "a whole number") from None
