"""Pools as grids of blocks. Pure. Tested in tests/web/test_drawing.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from web.drawing.markup import Content, Html, address, joined, notice, table, tag
from web.views.addresses import BlockCell, BlockView, PoolGrid
from web.views.state import counted

MOST_PROBLEMS = 200


def addresses(
    grids: Sequence[PoolGrid], block: BlockView | None, others: Sequence[tuple[str, str]]
) -> Html:
    """All pools, the block that was chosen, and problems that lie in no block."""
    parts: list[Content] = [_legend()]
    if not grids:
        parts.append(
            notice("missing", "There is no IP pool: calicoctl apply one, or init the CNI.")
        )
    if block is not None:
        parts.append(_block(block))
    parts += [_pool(grid, block) for grid in grids]
    if others:
        rows = [list(each) for each in others[:MOST_PROBLEMS]]
        parts.append(table("Problems that lie in no block", ("About", "What"), rows))
    return joined(parts)


def _legend() -> Html:
    return tag(
        "p",
        "A square is a block: its bar is how full it is, its colour its node, ! and a thick outline"
        " a problem. Its name, node and numbers stand in its title.",
        class_="legend",
    )


def _pool(grid: PoolGrid, chosen: BlockView | None) -> Html:
    title = f"{grid.name} {grid.cidr}".strip()
    words = (
        f"{grid.share} used: {grid.used} of {grid.capacity} addresses, {grid.free} free;"
        f" {counted(len(grid.blocks), 'block')}, {grid.unclaimed} more fit; {grid.settings}"
    )
    if grid.problems:
        words += f"; {counted(len(grid.problems), 'problem')}"
    cells = [
        _cell(cell, chosen is not None and chosen.cell.cidr == cell.cidr) for cell in grid.blocks
    ]
    parts: list[Content] = [tag("h2", title), tag("p", words, class_="summary")]
    parts.append(tag("div", *cells, class_="grid", role="list", aria_label=f"blocks of {title}"))
    if grid.problems:
        rows = [[each] for each in grid.problems[:MOST_PROBLEMS]]
        parts.append(table(f"Problems of {title}", ("Problem",), rows))
    return tag("section", *parts, id=f"pool-{grid.name}")


def _cell(cell: BlockCell, chosen: bool) -> Html:
    css = "block" + (" problem" if cell.problems else "") + (" chosen" if chosen else "")
    css += f" hue-{cell.hue}" if cell.hue >= 0 else " unowned"
    sign = ("!" if cell.problems else "") + cell.fill
    return tag(
        "a",
        sign,
        class_=css,
        role="listitem",
        href=address("/addresses", block=cell.cidr),
        title=cell.text,
        aria_label=cell.text,
    )


def _block(block: BlockView) -> Html:
    rows: Iterable[Sequence[Content]] = [
        [one.address, one.node, one.users, one.state, one.handle] for one in block.rows
    ]
    headings = ("Address", "Node", "Used by", "State", "Handle")
    return tag(
        "section",
        tag("h2", f"Block {block.cell.cidr} ", tag("a", "close", href="/addresses")),
        tag("p", block.cell.text, class_="summary"),
        *(notice("warning", problem) for problem in block.cell.problems),
        table("Addresses", headings, rows, "No address of it is in use."),
        class_="detail",
        id="detail",
    )
