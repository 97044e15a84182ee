"""What is around every view: the bar with the views, keys, light and dark, and the refresh.

Driven by a browser in tests/web/test_browser.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from nicegui import ui
from nicegui.events import KeyEventArguments

from web.drawing.markup import Html, joined, notice, tag
from web.facts.keeper import Keeper
from web.pages.shown import VIEWS, View

TICK = 2.0
READING = "Reading the datastore…"
WORKING = "Working it out…"
PATIENCE = 1.0
"""Seconds that a page waits for its view before it is sent without."""


def bar(current: View) -> Html:
    """The bar of links; the present view is named for screen readers, too."""
    links = [
        tag(
            "a",
            each.title,
            " ",
            tag("kbd", each.key),
            href=each.path,
            aria_current="page" if each is current else None,
        )
        for each in VIEWS
    ]
    skip = tag("a", "To the view", href="#view", class_="skip")
    return joined(
        [skip, tag("nav", tag("strong", "Muslin"), *links, class_="bar", aria_label="views")]
    )


def around(current: View) -> None:
    """Put the frame into the present page."""
    dark = ui.dark_mode(None)

    def key(event: KeyEventArguments) -> None:
        if not event.action.keydown or event.modifiers.ctrl or event.modifiers.alt:
            return
        pressed = str(event.key)
        target = next((each.path for each in VIEWS if each.key == pressed), None)
        if target is not None:
            ui.navigate.to(target)
        elif pressed == "d":
            dark.value = not dark.value

    ui.keyboard(on_key=key)
    ui.html(bar(current), sanitize=False)
    with ui.element("div").classes("bar"):
        ui.html(
            Html("Keys 1 to 6 change the view, d changes light and dark."),
            sanitize=False,
            tag="span",
        ).classes("quiet")
        switch = ui.html(Html("Light / dark"), sanitize=False, tag="button")
        switch.classes("end").on("click", lambda: dark.set_value(not dark.value))


def status(keeper: Keeper) -> Html:
    """When the facts were read, and what went wrong since."""
    parts = []
    if keeper.error:
        parts.append(notice("error", f"The datastore was not read: {keeper.error}"))
    if keeper.facts is None:
        parts.append(tag("p", READING, class_="quiet", role="status"))
    else:
        facts = keeper.facts
        cluster = facts.cluster.calicoVersion or "no version told"
        words = (
            f"{len(facts.nodes)} nodes, {len(facts.world.pods)} pods, cluster {cluster};"
            f" read at {facts.at:%H:%M:%S} UTC in {facts.seconds:.1f} s."
        )
        parts.append(tag("p", words, class_="quiet", role="status"))
    return joined(parts)


async def live(
    keeper: Keeper, view: View, query: Mapping[str, str], extra: Callable[[], None] | None = None
) -> None:
    """The view in the present page, made anew when there are newer facts."""
    keeper.touch()
    around(view)
    with (
        ui.element("section")
        .props(f'id=view tabindex=-1 aria-label="{view.title}"')
        .classes("view")
    ):
        ui.html(tag("h1", view.title), sanitize=False)
        reported = ui.html(status(keeper), sanitize=False)
        if extra is not None:
            extra()
        shown = ui.html("", sanitize=False)
    version = -1

    async def refresh() -> None:
        nonlocal version
        keeper.touch()
        newest = keeper.version
        if newest == version:
            return
        reported.set_content(status(keeper))
        if keeper.facts is not None and view.show is not None:
            show = view.show
            key = (view.path, *sorted(query.items()))
            making = asyncio.ensure_future(keeper.view(key, lambda facts: show(facts, query)))
            done, _ = await asyncio.wait({making}, timeout=PATIENCE)
            if not done:
                # It goes on, and the next tick finds it; what is shown stays meanwhile.
                if version < 0:
                    shown.set_content(tag("p", WORKING, class_="quiet", role="status"))
                return
            content = making.result()
            if shown.content != content:
                shown.set_content(content)
        version = newest

    await refresh()
    ui.timer(TICK, refresh)
