"""The map as SVG: racks of tiles, places above them, lines of sessions. Pure.

Positions are arithmetic, not forces: the same cluster gives the same picture, at 1,000 nodes too.
Every tile is a link, so it can be reached by the keyboard, and has its state in sign and words.
Tested in tests/web/test_drawing.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from web.drawing.markup import EMPTY, Content, Html, address, badge, joined, notice, table, tag
from web.views.network import NAMED, Line, Network, Rack, Tile
from web.views.state import State

WIDTH = 1180
GAP = 16
SMALL, LARGE = (26, 26), (150, 40)
LETTERS = 17
"""Letters of a name that a large tile has room for."""
Centres = dict[str, tuple[float, float]]


def network(shown: Network, chosen: str = "") -> Html:
    """The map with its summary, and the tables that say the same."""
    count = sum(len(rack.tiles) for rack in shown.racks)
    drawing, height = _drawing(shown, LARGE if count <= NAMED else SMALL, chosen)
    picture = tag(
        "svg",
        tag("title", "Map of nodes, reflectors, routers and sessions"),
        drawing,
        viewBox=f"0 0 {WIDTH} {height:.0f}",
        role="group",
        aria_label="map",
        class_="map",
    )
    parts: list[Content] = [tag("p", shown.summary, class_="summary"), _legend(), picture]
    if shown.left_out:
        parts.append(
            notice(
                "missing",
                f"{shown.left_out} sessions are not drawn: of so many, only those that are down.",
            )
        )
    parts.append(_troubles(shown))
    return joined(parts)


def _legend() -> Html:
    return tag(
        "p",
        *(joined([badge(one.sign, one.word, one.css), "  "]) for one in State),
        tag("span", "⬡ reflector   ⏏ draining   solid: up, dashed: down, dotted: not known"),
        class_="legend",
    )


def _drawing(shown: Network, size: tuple[int, int], chosen: str) -> tuple[Html, float]:
    centres: Centres = {}
    tiles: list[Html] = []
    y = float(GAP)
    y = _row(shown.others, LARGE, (GAP, y), centres, tiles, chosen, WIDTH - 2 * GAP)
    x, lowest = float(GAP), y
    boxes: list[Html] = []
    for rack in shown.racks:
        width = _rack_width(rack, size)
        if x + width > WIDTH - GAP and x > GAP:
            x, y = float(GAP), lowest + GAP
        bottom = _row(rack.tiles, size, (x + 8, y + 26), centres, tiles, chosen, width - 16)
        box = tag("rect", x=x, y=y, width=width, height=bottom - y, rx=6, class_="rack")
        boxes += [box, tag("text", rack.title, x=x + 8, y=y + 17, class_="rack-title")]
        lowest = max(lowest, bottom)
        x += width + GAP
    lines = [_line(line, centres) for line in shown.lines]
    return joined([*boxes, *lines, *tiles]), lowest + GAP


def _rack_width(rack: Rack, size: tuple[int, int]) -> float:
    """A rack of a few nodes is narrow, one of hundreds takes the whole width."""
    step = size[0] + 6
    columns = max(1, min(len(rack.tiles), 6 if size is LARGE else 20))
    if len(rack.tiles) > 200:
        columns = int((WIDTH - 2 * GAP - 16) / step)
    return float(max(columns * step + 10, 8 * len(rack.title) + 16))


def _row(
    tiles: Sequence[Tile],
    size: tuple[int, int],
    corner: tuple[float, float],
    centres: Centres,
    drawn: list[Html],
    chosen: str,
    width: float,
) -> float:
    """Place tiles in rows of at most `width`; returns where the next thing may begin below."""
    columns = max(1, int((width + 6) // (size[0] + 6)))
    for number, tile in enumerate(tiles):
        x = corner[0] + number % columns * (size[0] + 6)
        y = corner[1] + number // columns * (size[1] + 6)
        centres[tile.name] = (x + size[0] / 2, y + size[1] / 2)
        drawn.append(_tile(tile, (x, y), size, chosen))
    rows = -(-len(tiles) // columns)
    return corner[1] + rows * (size[1] + 6) + (4 if tiles else 0)


def _tile(tile: Tile, corner: tuple[float, float], size: tuple[int, int], chosen: str) -> Html:
    x, y = corner
    css = f"tile {tile.state.css}" + (" chosen" if tile.name == chosen else "")
    rounding = 4 if tile.node else size[1] / 2
    shape = tag("rect", x=x, y=y, width=size[0], height=size[1], rx=rounding, class_=css)
    marks = ("⬡" if tile.reflector else "") + ("⏏" if tile.draining else "")
    sign = f"{tile.state.sign}{marks}"
    label: Html = EMPTY
    middle = y + size[1] / 2
    if size is LARGE:
        name = tile.name if len(tile.name) <= LETTERS else f"{tile.name[: LETTERS - 1]}…"
        label = tag("text", f"{sign} {name}", x=x + 8, y=middle + 5)
    else:
        label = tag("text", sign[:2], x=x + size[0] / 2, y=middle + 5, text_anchor="middle")
    body = tag("g", tag("title", tile.text), shape, label)
    if not tile.node:
        return body
    return tag("a", body, href=address("/map", node=tile.name), aria_label=tile.text)


def _line(line: Line, centres: Centres) -> Html:
    near, far = centres.get(line.near), centres.get(line.far)
    if near is None or far is None:
        return EMPTY
    return tag(
        "line",
        tag("title", line.text),
        x1=f"{near[0]:.0f}",
        y1=f"{near[1]:.0f}",
        x2=f"{far[0]:.0f}",
        y2=f"{far[1]:.0f}",
        class_=f"session {line.state.css}",
    )


def _troubles(shown: Network) -> Html:
    """What is not up, in words: the map without its picture."""
    rows: list[list[Content]] = []
    for rack in shown.racks:
        for tile in rack.tiles:
            if tile.state in (State.DOWN, State.WARNING):
                state = badge(tile.state.sign, tile.state.word, tile.state.css)
                node = tag("a", tile.name, href=address("/map", node=tile.name))
                rows.append([node, rack.title, state, tile.text.partition("; ")[2]])
    return table(
        "Nodes that need a look", ("Node", "Rack", "State", "Why"), rows, "No node needs a look."
    )
