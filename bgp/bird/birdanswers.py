"""What BIRD's commands are answered with: `show status`, `show protocols`, `show route`. Pure.

The commands are those of a BIRD that is only looked at; what would change something is denied
as to a restricted user. `answer` is a generator: a table of any size costs the agent one small
slice at a time (`bgp.bird.birdctl`). Tested in tests/bgp/test_birdctl.py, and with Debian's
`birdc`.

    show status
    show protocols [all] [NAME | "PATTERN"]
    show route [all] [primary] [count] [for ADDRESS | PREFIX] [protocol NAME]
               [export NAME] [table master|master4|master6]
"""

from __future__ import annotations

import fnmatch
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import ip_address, ip_network

from bgp.bird import birdlines as out
from bgp.bird.birdlines import Line, last
from bgp.bird.world import ShownRoute, World
from bgp.speaker.interface import IPAddress, IPNetwork


class _Wrong(Exception):
    """A command that BIRD would not take either; the text says why."""


def answer(command: str, world: World) -> Iterator[Line | None]:
    """The lines that answer a command, the ending one included. Raises nothing.

    None marks a prefix that gave no line: the caller may pause there.
    """
    try:
        words = shlex.split(command)
        yield from _answer(words, world, quoted='"' in command)
    except (_Wrong, ValueError) as error:
        yield last(out.SYNTAX, f"syntax error, {error}")


def _answer(words: list[str], world: World, quoted: bool) -> Iterator[Line | None]:
    match words:
        case ["show", "status"]:
            yield from _status(world)
        case ["show", "protocols", *rest]:
            yield from _protocols(rest, world, quoted)
        case ["show", "route", *rest]:
            yield from _routes(_asked(rest, world), world)
        case ["restrict"]:
            yield last(out.RESTRICTED, "Access restricted")
        case ["configure" | "disable" | "enable" | "restart" | "reload" | "down" | "debug", *_]:
            yield last(out.DENIED, "Access denied: this socket only shows; use calicoctl")
        case ["graceful", *_] | ["dump", *_] | ["log", *_]:
            yield last(out.DENIED, "Access denied: this socket only shows; use calicoctl")
        case []:
            raise _Wrong("unexpected END")
        case ["show"]:
            raise _Wrong("unexpected END, expecting status, protocols or route")
        case ["show", word, *_]:
            raise _Wrong(f"unexpected {word!r}, expecting status, protocols or route")
        case [word, *_]:
            raise _Wrong(f"unexpected {word!r}, expecting show")


def _status(world: World) -> Iterator[Line]:
    yield Line(out.VERSION, f"BIRD {world.version}")
    for words, value in world.status():
        yield Line(out.IDENTITY, f"{words} {value}")
    if waiting := world.recovering():
        yield Line(out.RECOVERING, "Graceful restart recovery in progress")
        yield Line(out.RECOVERING, f"  {waiting}")
    yield last(out.RUNNING, "Daemon is up and running")


# -- protocols


def _protocols(words: list[str], world: World, quoted: bool) -> Iterator[Line]:
    details = words[:1] == ["all"]
    words = words[1:] if details else words
    if len(words) > 1:
        raise _Wrong(f"unexpected {words[1]!r}, expecting END")
    states = world.protocols(details)
    if words and words[0] != "all":
        states = [each for each in states if fnmatch.fnmatchcase(each.name, words[0])]
        if not states and not quoted:
            raise _Wrong(f"there is no protocol {words[0]!r}")
        if not states:
            yield last(out.NO_PROTOCOLS, "No protocols match")
            return
    yield Line(out.PROTOCOL_HEADER, out.HEADER)
    now = world.now()
    for each in states:
        changed = out.since(each.since, now)
        row = out.protocol_row(each.name, each.kind, each.table, each.state, changed, each.info)
        yield Line(out.PROTOCOL, row)
        if details:
            for text in each.details:
                yield Line(out.PROTOCOL_DETAIL, text)
            yield Line(out.PROTOCOL_DETAIL)
    yield last(out.OK)


# -- routes


@dataclass
class _Asked:
    """The arguments of `show route`."""

    details: bool = False
    primary: bool = False
    count: bool = False
    address: IPAddress | None = None
    prefix: IPNetwork | None = None
    protocol: str = ""
    export: str = ""
    nothing: bool = field(default=False)
    """A table of the other family."""


def _asked(words: list[str], world: World) -> _Asked:
    asked, rest = _Asked(), list(words)
    names = {each.name for each in world.protocols(False)}
    while rest:
        word = rest.pop(0)
        if word == "all":
            asked.details = True
        elif word in ("count", "stats"):
            asked.count = True
        elif word == "primary":
            asked.primary = True
        elif word == "for":
            text = _next(rest, "an address")
            if "/" in text:
                asked.prefix = _network(text)
            else:
                asked.address = _address(text)
        elif word == "table":
            table = _next(rest, "a table")
            tables = {"master": world.family, "master4": 4, "master6": 6}
            if table not in tables:
                raise _Wrong(f"there is no table {table!r}")
            asked.nothing = tables[table] != world.family
        elif word in ("protocol", "export"):
            name = _next(rest, "a protocol")
            if name not in names:
                raise _Wrong(f"there is no protocol {name!r}")
            setattr(asked, word, name)
        elif "/" in word:
            asked.prefix = _network(word)
        else:
            raise _Wrong(f"unexpected {word!r} in show route")
    return asked


def _next(rest: list[str], what: str) -> str:
    if not rest:
        raise _Wrong(f"unexpected END, expecting {what}")
    return rest.pop(0)


def _address(text: str) -> IPAddress:
    try:
        return ip_address(text)
    except ValueError:
        raise _Wrong(f"{text!r} is no address") from None


def _network(text: str) -> IPNetwork:
    try:
        return ip_network(text)
    except ValueError:
        raise _Wrong(f"{text!r} is no prefix") from None


def _routes(asked: _Asked, world: World) -> Iterator[Line | None]:
    single = asked.address is not None or asked.prefix is not None
    if asked.nothing:
        prefixes: list[IPNetwork] = []
    else:
        prefixes = _matching(asked, world) if single else world.prefixes()
    shown = networks = total = 0
    head = f"Table master{world.family}:"
    now = world.now()
    for prefix in prefixes:
        yield None
        routes = world.routes(prefix, asked.details)
        total += len(routes)
        networks += bool(routes)
        if asked.export and not world.exported(asked.export, prefix):
            continue
        label = str(prefix)
        for route in routes:
            if asked.protocol not in ("", route.protocol):
                continue
            if (asked.primary or asked.export) and not route.primary:
                continue
            shown += 1
            if asked.count:
                continue
            if head:
                yield Line(out.ROUTE, head)
                head = ""
            yield from _route(route, label, now)
            label = ""
    if asked.count:
        text = f"{shown} of {total} routes for {networks} networks in"
        yield Line(out.ROUTE, f"{text} table master{world.family}")
        yield last(out.ROUTE_COUNT, f"Total: {text} 1 tables")
    elif single and not shown:
        yield last(out.NOT_FOUND, "Network not found")
    else:
        yield last(out.OK)


def _matching(asked: _Asked, world: World) -> list[IPNetwork]:
    """The prefix asked for, or the longest one that holds the address."""
    if asked.address is None:
        return [asked.prefix] if asked.prefix is not None else []
    if asked.address.version != world.family:
        return []
    for length in range(asked.address.max_prefixlen, -1, -1):
        net = ip_network((asked.address, length), strict=False)
        if world.routes(net):
            return [net]
    return []


def _route(route: ShownRoute, label: str, now: datetime) -> Iterator[Line]:
    sender = f" from {route.sender}" if route.sender else ""
    star = " *" if route.primary else ""
    mark = f" [{route.mark}]" if route.mark else ""
    when = out.since(route.since, now)
    text = f"{label:20} {route.target} [{route.protocol} {when}{sender}]{star}"
    yield Line(out.ROUTE, f"{text} ({route.preference}){mark}")
    for gateway, interface in route.hops:
        towards = f"via {gateway}" if gateway else ""
        through = f"{'on' if gateway else 'dev'} {interface}" if interface else ""
        yield Line(out.ROUTE, f"\t{' '.join(filter(None, (towards, through)))}")
    for code, text in route.details:
        yield Line(code, text)
