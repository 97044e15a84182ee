"""From an address to what stands on the page: the facts and the query in, HTML out. Pure.

Tested in tests/web/test_shown.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from libcalico.errors import InvalidValue
from web.drawing import addresses as address_drawing
from web.drawing import health as health_drawing
from web.drawing import network as network_drawing
from web.drawing import node as node_drawing
from web.drawing import policy as policy_drawing
from web.drawing import starts as start_drawing
from web.drawing.markup import Html, entry, form, joined, notice
from web.facts.facts import Facts
from web.views.addresses import block_view, other_problems, pools
from web.views.flows import NAMES as FLOW_NAMES
from web.views.health import health
from web.views.matrix import NAMESPACE, Asked, labels_of, matrix
from web.views.network import network, rack_label
from web.views.node import node_view
from web.views.starts import COMMANDS, starts

SECONDS = 8.0
"""How long a matrix is asked for before it shows what it has."""
Query = Mapping[str, str]


def map_view(facts: Facts, query: Query) -> Html:
    """View 1, and the node that was clicked."""
    chosen = query.get("node", "")
    by = query.get("by", "")
    parts = [form("/map", entry("by", "Racks by the label", by or rack_label(facts), 24))]
    if chosen:
        node = node_view(facts, chosen)
        if node is None:
            parts.append(notice("error", f"There is no node {chosen}."))
        else:
            parts.append(node_drawing.node(node))
    parts.append(network_drawing.network(network(facts, by), chosen))
    return joined(parts)


def policy_view(facts: Facts, query: Query) -> Html:
    """View 3, and the cell that was clicked."""
    try:
        asked = asked_of(query)
        labels = labels_of(facts.world)
        end = time.monotonic() + SECONDS
        made = matrix(facts.world, asked, lambda: time.monotonic() > end)
    except InvalidValue as problem:
        return joined(
            [
                policy_drawing.questions(Asked(), labels_of(facts.world)),
                notice("error", str(problem)),
            ]
        )
    chosen = None
    if "source" in query and "destination" in query:
        chosen = (query["source"], query["destination"])
    head = policy_drawing.questions(asked, labels)
    return joined([head, policy_drawing.matrix(made, asked, chosen)])


def asked_of(query: Query) -> Asked:
    """What a query asks a matrix for. Raises InvalidValue naming the field."""
    protocol = query.get("protocol", "tcp")
    port: int | None = None
    text = query.get("port", "80" if protocol in ("tcp", "udp", "sctp") else "")
    if text and not protocol.startswith("icmp"):
        if not (text.isascii() and text.isdigit() and int(text) <= 65535):
            raise InvalidValue("port", text, "0 to 65535")
        port = int(text)
    version = query.get("version", "4")
    if version not in ("4", "6"):
        raise InvalidValue("version", version, "4 or 6")
    asked = Asked(query.get("by", NAMESPACE), protocol, port, int(version))
    asked.kind()
    return asked


def address_view(facts: Facts, query: Query) -> Html:
    """View 4, and the block that was clicked or looked for."""
    requested = query.get("block", "") or query.get("find", "")
    head = form("/addresses", entry("find", "Address or block", query.get("find", ""), 24))
    grids = pools(facts)
    block = block_view(facts, grids, requested) if requested else None
    pool = query.get("pool", "")
    if pool:
        grids = [grid for grid in grids if grid.name == pool]
    parts = [head]
    if requested and block is None:
        parts.append(notice("missing", f"No block holds {requested}."))
    if pool and not grids:
        parts.append(notice("error", f"There is no pool {pool}."))
    parts.append(address_drawing.addresses(grids, block, other_problems(facts)))
    return joined(parts)


def start_view(facts: Facts, query: Query) -> Html:
    """View 5."""
    command = query.get("command", COMMANDS[0])
    if command not in COMMANDS:
        return notice("error", f"command: {command!r} is not valid: {', '.join(COMMANDS)}")
    node = query.get("node", "")
    return start_drawing.starts(starts(facts, command, node), command, node)


def health_view(facts: Facts, query: Query) -> Html:
    """View 6."""
    return health_drawing.health(health(facts))


@dataclass(frozen=True, slots=True)
class View:
    """A view of the page: its path, its name, its key, and what makes it."""

    path: str
    title: str
    key: str
    show: Callable[[Facts, Query], Html] | None
    takes: frozenset[str] = frozenset()


VIEWS = (
    View("/map", "Map", "1", map_view, frozenset({"node", "by"})),
    View("/flows", "Flows", "2", None, FLOW_NAMES),
    View(
        "/policy", "Policy", "3", policy_view,
        frozenset({"by", "protocol", "port", "version", "source", "destination"}),
    ),
    View("/addresses", "Addresses", "4", address_view, frozenset({"pool", "block", "find"})),
    View("/starts", "Pods' starts", "5", start_view, frozenset({"command", "node"})),
    View("/health", "Health", "6", health_view),
)  # fmt: skip
LONGEST = 400
"""Characters of a query's value that are looked at."""


def taken(view: View, given: Mapping[str, str]) -> dict[str, str]:
    """The part of a query that a view takes, cut to a sane length."""
    return {name: value[:LONGEST] for name, value in given.items() if name in view.takes and value}
