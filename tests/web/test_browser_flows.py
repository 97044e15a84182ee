"""Flows in a real browser: what nodes delivered to an aggregator, filtered, with deciding rules."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flows.record import Action, Counts, Flow, Reporter
from tests.flows.running import aggregator
from tests.flows.test_client import START, deliver
from tests.support.etcd import Etcd
from tests.support.patience import HANG
from tests.web import world
from tests.web.browser import Seen, browsing, environment, needs_browser, serving
from tests.web.test_flows_view import END, flow

pytestmark = [pytest.mark.browser, needs_browser]


@contextmanager
def delivered(flows: list[Flow]) -> Iterator[str]:
    """An aggregator in a thread, to which these flows were delivered; gives its address."""
    found: list[str] = []
    ready, over = threading.Event(), threading.Event()

    async def story() -> None:
        async with aggregator() as running:
            await deliver(running, flows)
            found.append(running.place.address)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(story()))
    thread.start()
    try:
        assert ready.wait(HANG)
        yield found[0]
    finally:
        over.set()
        thread.join(HANG)


def at(one: Flow, started: int) -> Flow:
    """The flow at the aggregator's time."""
    return Flow(one.key, START, START + 15, Counts(started=started))


@pytest.mark.promise("F-98")
def test_flows_with_the_rule_that_decided(etcd: Etcd, tmp_path: Path) -> None:
    world.store(etcd)
    denied = flow(action=Action.DENY, reporter=Reporter.DESTINATION, hit=END)
    with (
        delivered([at(flow(), 5), at(denied, 5)]) as address,
        serving(tmp_path, environment(etcd), [f"--aggregator={address}"]) as url,
        browsing() as page,
    ):
        seen = Seen()
        seen.follow(page)
        page.goto(f"{url}/flows")
        page.wait_for_selector("svg.sankey")
        text = page.inner_text("main")
        assert "allow: tier default, NetworkPolicy data/db, rule 2" in text
        assert "✕ DENIED" in text
        assert "deny: end of tier default, where NetworkPolicy data/db selects it" in text
        band = page.get_attribute("svg.sankey path.band", "aria-label")
        assert band == "shop to data: 5 connections, 5 DENIED"
        page.fill("input[name=source_namespace]", "nowhere")
        page.click("button[type=submit]")
        page.wait_for_selector("text=No flow fits")
        assert "source_namespace=nowhere" in page.url
        page.goto(f"{url}/flows?action=allow&destination_namespace=data")
        page.wait_for_selector("svg.sankey")
        assert "✕ DENIED" not in page.inner_text("main")
        assert seen.complaints == []
