"""Notifications that came at once are counted by what they are about."""

from __future__ import annotations

from typing import Any, cast

from felix.dataplane.devices.heard import Heard
from linux.monitor.events import AddressChanged, LinkChanged, Overrun


def test_notifications_are_counted_by_what_they_are_about() -> None:
    heard, what = Heard(), cast(Any, None)
    heard.count([Overrun()])
    heard.count([])
    assert heard.links.count == heard.addresses.count == 0
    link, address = LinkChanged(what, removed=False), AddressChanged(what, removed=True)
    heard.count([link, address, link, Overrun()])
    heard.count([link])
    assert (heard.links.count, heard.links.total) == (2, 3)
    assert (heard.addresses.count, heard.addresses.total) == (1, 1)
