"""Options of `calicoctl flows` as filters, and what is refused by the option's name."""

from __future__ import annotations

import pytest

from calicoctl.seen.wanted import Choice, filters_of, lets_through, seconds_ago
from flows.record import Action, End, EndKind, Key, Reporter
from libcalico.errors import InvalidValue

WEB = End(EndKind.WORKLOAD, "web-7d4b9-*", "shop")
DB = End(EndKind.WORKLOAD, "db-*", "data")
PUBLIC = End(EndKind.NETWORK, "pub")
HOST = End(EndKind.HOST, "web-host")


def key(source: End, destination: End, action: Action = Action.ALLOW) -> Key:
    return Key(source, destination, 5432, "tcp", Reporter.SOURCE, action)


TO_DB, FROM_HOST, OUT = key(WEB, DB), key(HOST, WEB, Action.DENY), key(DB, PUBLIC)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (Choice(), {TO_DB, FROM_HOST, OUT}),
        (Choice(source="web"), {TO_DB, FROM_HOST}),
        (Choice(source="shop/web"), {TO_DB}),
        (Choice(source="shop/"), {TO_DB}),
        (Choice(source="-/web"), {FROM_HOST}),
        (Choice(destination="public"), {OUT}),
        (Choice(namespace="shop"), {TO_DB, FROM_HOST}),
        (Choice(namespace="data"), {TO_DB, OUT}),
        (Choice(namespace="data", source="data/db"), {OUT}),
        (Choice(verdict="deny"), {FROM_HOST}),
        (Choice(port=5432, protocol="TCP"), {TO_DB, FROM_HOST, OUT}),
        (Choice(port=80), set()),
        (Choice(reporter="dst"), set()),
        (Choice(policy="shop/locked"), set()),
    ],
)
def test_what_is_wanted(choice: Choice, expected: set[Key]) -> None:
    filters = filters_of(choice)
    assert {one for one in (TO_DB, FROM_HOST, OUT) if lets_through(filters, one)} == expected


@pytest.mark.parametrize(
    ("choice", "option"),
    [
        (Choice(source="a/b/c"), "--from"),
        (Choice(destination="/web"), "--to"),
        (Choice(port=70000), "--port"),
        (Choice(policy="a/b/c"), "--policy"),
        (Choice(namespace="x", source="a/", destination="b/"), "--namespace"),
    ],
)
def test_what_means_nothing_is_refused(choice: Choice, option: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        filters_of(choice)
    assert caught.value.field == option


def test_since() -> None:
    assert seconds_ago("15m") == -900
    for text in ("soon", "0s", "2h", "-5m"):
        with pytest.raises(InvalidValue, match="--since"):
            seconds_ago(text)
