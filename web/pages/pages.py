"""The pages, registered with NiceGUI: one for each view.

Driven by a browser in tests/web/test_browser.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from nicegui import ui
from starlette.requests import Request

from web.drawing import policy as policy_drawing
from web.facts.keeper import Keeper
from web.drawing.markup import Html
from web.pages.frame import live
from web.pages.shown import VIEWS, View, taken
from web.views.plan import plan_view

PATIENCE = 30.0
"""Seconds until NiceGUI gives up on a page; views are bounded long before."""


def register(keeper: Keeper) -> None:
    """Register every view, and the map as the first page."""
    for view in VIEWS:
        made = _page(keeper, view)
        ui.page(view.path, title=f"{view.title} · Muslin", response_timeout=PATIENCE)(made)
    first = _page(keeper, VIEWS[0])
    ui.page("/", title="Map · Muslin", response_timeout=PATIENCE)(first)


def _page(keeper: Keeper, view: View) -> Callable[[Request], Awaitable[None]]:
    async def page(request: Request) -> None:
        query = taken(view, dict(request.query_params))
        extra = (lambda: _paste(keeper)) if view.path == "/policy" else None
        await live(keeper, view, query, extra)

    return page


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
