"""`calicoctl web`: the page. `calico-web` serves it, which stands a floor above and is run instead.

Tested in tests/web/test_main.py.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from typing import NoReturn

import click
from click.core import ParameterSource

from calicoctl.cli import datastore_options, examples
from calicoctl.commands.aggregator import aggregator_options
from libcalico.errors import MuslinError

PROGRAM = "calico-web"


@click.command(
    "web", epilog=examples("calicoctl web", "calicoctl web --port 0 --aggregator goldmane:7443")
)
@click.option("--port", type=int, default=None, metavar="PORT", help="8091; 0 is any free one.")
@click.option(
    "--listen", default=None, metavar="ADDRESS", help="127.0.0.1; others need --token-review."
)
@click.option(
    "--status",
    multiple=True,
    metavar="NODE=FOLDER",
    help="Status files of a node that lie elsewhere; may be repeated.",
)
@click.option("--token-review", is_flag=True, help="Ask for a token of Kubernetes.")
@click.option("--tls-cert", default=None, metavar="FILE", help="Certificate to serve with.")
@click.option("--tls-key", default=None, metavar="FILE", help="The certificate's key.")
@aggregator_options
@datastore_options
def web(
    port: int | None,
    listen: str | None,
    status: tuple[str, ...],
    token_review: bool,
    tls_cert: str | None,
    tls_key: str | None,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
    **place: str | None,
) -> None:
    """Show the network in a browser: map, flows, policy, addresses, pods' starts and health.

    It only reads, and listens on this machine alone unless told otherwise. It needs the extra
    `muslin[web]`.
    """
    arguments: list[str] = []
    for flag, value in (
        ("--config", config),
        ("--context", context or None),
        ("--port", port),
        ("--listen", listen),
        *((f"--{name.replace('_', '-')}", value) for name, value in _named(place).items()),
        ("--tls-cert", tls_cert),
        ("--tls-key", tls_key),
    ):
        if value is not None:
            arguments.append(f"{flag}={value}")
    arguments += [f"--status={one}" for one in status]
    for flag, requested in (
        ("--token-review", token_review),
        ("--allow-version-mismatch", allow_version_mismatch),
    ):
        arguments += [flag] if requested else []
    _replace_us(arguments)


def _named(place: Mapping[str, str | None]) -> Mapping[str, str | None]:
    """What names the aggregator; without an address nothing that the environment alone says."""
    if place["aggregator"]:
        return place
    source = click.get_current_context().get_parameter_source
    return {
        name: value
        for name, value in place.items()
        if source(name) is not ParameterSource.ENVIRONMENT
    }


def _replace_us(arguments: list[str]) -> NoReturn:
    """Become `calico-web`. Raises MuslinError where it is not installed."""
    beside = os.path.dirname(sys.executable)
    path = shutil.which(PROGRAM, path=f"{beside}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if path is None:
        raise MuslinError(
            f"{PROGRAM} is not installed on this machine, neither beside calicoctl nor in PATH:"
            " pip install 'muslin[web]'"
        )
    sys.stdout.flush()
    os.execv(path, [PROGRAM, *arguments])
