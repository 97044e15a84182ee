"""Where the aggregator of flows is: options that commands share, and environment variables.

    --aggregator HOST:PORT          GOLDMANE_ADDRESS
    --aggregator-ca FILE            GOLDMANE_CA_FILE
    --aggregator-cert FILE          GOLDMANE_CERT_FILE
    --aggregator-key FILE           GOLDMANE_KEY_FILE
    --aggregator-name NAME          GOLDMANE_SERVER_NAME

Tested in tests/calicoctl/test_flows.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from flows.place import Place

F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS = (
    ("--aggregator", "HOST:PORT", "ADDRESS", "The aggregator of flows (calico-goldmane)."),
    ("--aggregator-ca", "FILE", "CA_FILE", "Who signed the aggregator's certificate; PEM."),
    ("--aggregator-cert", "FILE", "CERT_FILE", "The certificate to show it; PEM."),
    ("--aggregator-key", "FILE", "KEY_FILE", "The key of that certificate; PEM."),
    ("--aggregator-name", "NAME", "SERVER_NAME", "The name in its certificate, if not HOST."),
)


def aggregator_options(function: F) -> F:
    """Add the options; the command gets `aggregator`, `aggregator_ca` and so on, None if absent."""
    for name, metavar, variable, text in reversed(_OPTIONS):
        option = click.option(
            name, metavar=metavar, envvar=f"GOLDMANE_{variable}", default=None, help=text,
            show_envvar=True,
        )  # fmt: skip
        function = option(function)
    return function


def place_of(
    address: str, ca: str | None, certificate: str | None, key: str | None, name: str | None
) -> Place:
    """The place that these options name."""
    from flows.place import Place

    return Place(address, ca or "", certificate or "", key or "", name or "")
