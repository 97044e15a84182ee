"""Warnings of Kubernetes that our processes wrote, where the datastore is the Kubernetes API.

Source: API reference of Event (core/v1). Tested in tests/web/test_events.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec

from calicoctl.session import Options, configuration
from libcalico import apiconfig
from libcalico.datastore.kubernetes import client_of
from libcalico.errors import NO_DOCUMENT
from libcalico.kubernetes.errors import KubernetesError
from web.cleaning import cleaned
from web.facts.facts import EventLine

PATH = "/api/v1/events"
OURS = "calico-"
"""How the components begin that our processes name as reporters."""
MOST = 500


class _Of(msgspec.Struct):
    kind: str = ""
    namespace: str = ""
    name: str = ""


class _Source(msgspec.Struct):
    component: str = ""


class _Event(msgspec.Struct):
    involvedObject: _Of = msgspec.field(default_factory=_Of)
    source: _Source = msgspec.field(default_factory=_Source)
    reportingComponent: str = ""
    reason: str = ""
    message: str = ""
    lastTimestamp: str | None = None
    eventTime: str | None = None
    count: int | None = None


class _List(msgspec.Struct):
    items: list[_Event] = []


async def read_events(options: Options) -> tuple[tuple[EventLine, ...] | None, str]:
    """The newest first; None where there is no Kubernetes API, with why they lack (or empty)."""
    config = configuration(options)
    if config.datastore_type != apiconfig.KUBERNETES:
        return None, ""
    try:
        client = client_of(config, os.environ)
        try:
            asked = {"fieldSelector": "type=Warning", "limit": str(MOST)}
            raw = await client.request("GET", PATH, asked)
        finally:
            await client.close()
        return lines_of(raw), ""
    except KubernetesError as problem:
        return (), f"Events cannot be read: {cleaned(str(problem))}"
    except NO_DOCUMENT as problem:
        return (), f"Events cannot be read: {problem}"


def lines_of(raw: bytes) -> tuple[EventLine, ...]:
    """Our Events of a list, the newest first. Raises NO_DOCUMENT. Pure."""
    result: Iterable[_Event] = msgspec.json.decode(raw, type=_List).items
    lines = [
        EventLine(
            one.lastTimestamp or one.eventTime or "",
            one.source.component or one.reportingComponent,
            " ".join(filter(None, (one.involvedObject.kind, _name(one.involvedObject)))),
            one.reason,
            str(cleaned(one.message)),
            one.count or 1,
        )
        for one in result
        if (one.source.component or one.reportingComponent).startswith(OURS)
    ]
    return tuple(sorted(lines, key=lambda line: line.when, reverse=True))


def _name(of: _Of) -> str:
    return f"{of.namespace}/{of.name}" if of.namespace else of.name
