"""The pages, registered with NiceGUI: one for each view.

Driven by a browser in tests/web/test_browser.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from nicegui import ui
from starlette.requests import Request

from libcalico.errors import InvalidValue
from web.drawing import flows as flow_drawing
from web.drawing import policy as policy_drawing
from web.drawing.markup import Html, notice, tag
from web.facts.asking import Asking
from web.facts.keeper import Keeper
from web.pages.frame import around, live
from web.pages.shown import VIEWS, View, taken
from web.views.flows import flow_view, query_of
from web.views.plan import plan_view

FLOW_TICK = 5.0
PATIENCE = 30.0
"""Seconds until NiceGUI gives up on a page; views are bounded long before."""


def register(keeper: Keeper, asking: Asking) -> None:
    """Register every view, and the map as the first page."""
    for view in VIEWS:
        made = _flows(keeper, asking, view) if view.path == "/flows" else _page(keeper, view)
        ui.page(view.path, title=f"{view.title} · Muslin", response_timeout=PATIENCE)(made)
    first = _page(keeper, VIEWS[0])
    ui.page("/", title="Map · Muslin", response_timeout=PATIENCE)(first)


def _page(keeper: Keeper, view: View) -> Callable[[Request], Awaitable[None]]:
    async def page(request: Request) -> None:
        query = taken(view, dict(request.query_params))
        extra = (lambda: _paste(keeper)) if view.path == "/policy" else None
        await live(keeper, view, query, extra)

    return page


def _flows(keeper: Keeper, asking: Asking, view: View) -> Callable[[Request], Awaitable[None]]:
    """Flows are asked of the aggregator by each page that is open, filtered there."""

    async def page(request: Request) -> None:
        given = taken(view, dict(request.query_params))
        around(view)
        with (
            ui.element("section")
            .props(f'id=view tabindex=-1 aria-label="{view.title}"')
            .classes("view")
        ):
            ui.html(tag("h1", view.title), sanitize=False)
            ui.html(flow_drawing.filters(given), sanitize=False)
            shown = ui.html("", sanitize=False)

        async def refresh() -> None:
            keeper.touch()
            content = await flow_content(asking, given)
            if shown.content != content:
                shown.set_content(content)

        await refresh()
        ui.timer(FLOW_TICK, refresh)

    return page


async def flow_content(asking: Asking, given: Mapping[str, str]) -> Html:
    """The flows that a query asks for, or what is wrong with it or with the aggregator."""
    try:
        query = query_of(given)
    except InvalidValue as problem:
        return notice("error", str(problem))
    listing, missing = await asking.flows(query)
    if listing is None:
        return notice("error" if asking.there else "missing", missing)
    return flow_drawing.flows(flow_view(listing))


def _paste(keeper: Keeper) -> None:
    """A place to paste a policy, and what storing it would change."""
    with ui.element("details"):
        ui.html(Html("Plan a policy: paste it, nothing is stored"), sanitize=False, tag="summary")
        text = ui.textarea("Policies, YAML or JSON").props("outlined").classes("paste")
        delete = ui.checkbox("as if they were deleted")
        button = ui.button("Plan").props("no-caps")
        shown = ui.html("", sanitize=False).props("aria-live=polite")

    async def plan() -> None:
        if keeper.facts is None:
            return
        world = keeper.facts.world
        button.disable()
        try:
            made = await asyncio.to_thread(
                plan_view, world, str(text.value or ""), delete=bool(delete.value)
            )
            shown.set_content(policy_drawing.plan(made))
        finally:
            button.enable()

    button.on_click(plan)
