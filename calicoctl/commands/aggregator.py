"""Where the aggregator of flows is: options that commands share, and environment variables.

    --aggregator HOST:PORT          GOLDMANE_ADDRESS
    --aggregator-ca FILE            GOLDMANE_CA_FILE
    --aggregator-cert FILE          GOLDMANE_CERT_FILE
    --aggregator-key FILE           GOLDMANE_KEY_FILE
    --aggregator-name NAME          GOLDMANE_SERVER_NAME

Tested in tests/calicoctl/test_flows.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    """Add the options; the command gets `aggregator`, `aggregator_ca` and so on, None if absent, in
    keywords that `place_of` takes."""
    for name, metavar, variable, text in reversed(_OPTIONS):
        option = click.option(
            name, metavar=metavar, envvar=f"GOLDMANE_{variable}", default=None, help=text,
            show_envvar=True,
        )  # fmt: skip
        function = option(function)
    return function


def place_of(place: Mapping[str, str | None], address: str = "") -> Place:
    """The place that these options name; at another address where one is given."""
    from flows.place import Place

    names = ("aggregator", *(f"aggregator_{name}" for name in ("ca", "cert", "key", "name")))
    named, *rest = (place.get(name) or "" for name in names)
    return Place(address or named, *rest)
