"""The page in a real browser, on an etcd with planted faults: each is visible, and its text says
the cause.

In the fast tier one story; at full size every view. With MUSLIN_PICTURES set, the pictures of
docs/pictures are made anew.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from calicoctl.node.processes import PROC, namespace
from libcalico.datastore.interface import Delete, Put
from libcalico.model.keys import ResourceKey
from libcalico.model.kinds import key_of
from tests.size import FULL
from tests.support.etcd import Etcd
from tests.support.explain_world import policy
from tests.support.explaining import world_of
from tests.web import world
from tests.web.browser import Seen, browsing, environment, needs_browser, serving

pytestmark = [pytest.mark.browser, needs_browser]
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
full_size = pytest.mark.skipif(not FULL, reason="full size: ./run test tests/web/test_browser.py")
CANARIES = ("canary-url", "canary-field", "canary-rule", "canary-wireguard", "canary-token")
STORIES: list[tuple[str, tuple[str, ...]]] = [
    (
        "/map?node=n2",
        ("✕ down", "refused", "10.99.0.254 port 179 refuses connections",
         "start the router's BGP, or correct the address of BGPPeer(tor)", "no such field"),
    ),
    ("/health", ("1 does not hold its end", "leaked", "100% used", "is no Node", "What to do")),
    ("/addresses?find=10.65.0.1", ("LEAKED: allocated, and nothing uses it", "10.65.0.0/26")),
    (
        "/policy?port=5432&source=lab&destination=shop",
        ("1 of 2 pairs allowed", "end of tier default: no policy of it allows the packet"),
    ),
    ("/starts", ("240.0 ms", "store")),
    ("/flows", ("There is no aggregator", "To get one")),
]  # fmt: skip


@dataclass
class Stage:
    """A served page with its etcd, the status folder of n2, and a browser."""

    url: str
    etcd: Etcd
    folder: Path
    page: Any
    seen: Seen

    def open(self, path: str) -> str:
        """Open a deep link; the text of the page once a view is there."""
        self.page.goto(self.url + path)
        self.page.wait_for_selector("main table, main .notice")
        return str(self.page.inner_text("main"))


@pytest.fixture
def stage(etcd: Etcd, tmp_path: Path) -> Iterator[Stage]:
    """The world of faults, served, and a browser."""
    world.store(etcd)
    folder = world.write_status(
        tmp_path / "n2", reason="no such field; see https://root:canary-url@etcd:2379/x"
    )
    document = json.loads((folder / "bgp.json").read_text())
    document |= {"password": "canary-field", "wireguardPrivateKey": "canary-wireguard"}
    (folder / "bgp.json").write_text(json.dumps(document))
    settings = {**environment(etcd), "K8S_API_TOKEN": "canary-token"}
    with (
        alive(folder),
        serving(tmp_path, settings, [f"--status=n2={folder}"]) as url,
        browsing() as page,
    ):
        seen = Seen()
        seen.follow(page)
        yield Stage(url, etcd, folder, page, seen)


@contextmanager
def alive(folder: Path) -> Iterator[None]:
    """The files of a folder are of a process that lives: then their age does not count."""
    with subprocess.Popen(["bash", "-c", "read # calico"], stdin=subprocess.PIPE) as writer:
        for file in folder.glob("*.json"):
            document = json.loads(file.read_text())
            document |= {"pid": writer.pid, "pid_namespace": namespace(PROC / "self/ns/pid")}
            file.write_text(json.dumps(document))
        yield
        writer.kill()


@pytest.mark.parametrize(("path", "told"), STORIES if FULL else STORIES[:1])
def test_a_fault_is_visible_and_its_text_says_the_cause(
    stage: Stage, path: str, told: tuple[str, ...]
) -> None:
    text = stage.open(path)
    for words in told:
        if words not in text:
            stage.page.wait_for_function(
                "words => document.querySelector('main').textContent.includes(words)"
                " || document.querySelector('main').innerHTML.includes(words)", arg=words,
            )  # fmt: skip
    assert stage.seen.complaints == []
    assert stage.seen.hosts == {stage.url.split("/")[2]}
    assert not [one for one in CANARIES if one in "".join(stage.seen.bodies)]
    picture(stage.page, path)


def picture(page: Any, path: str) -> None:
    """Keep a picture for the docs, where that is asked for."""
    if os.environ.get("MUSLIN_PICTURES"):
        PICTURES.mkdir(exist_ok=True)
        name = path.strip("/").partition("?")[0]
        page.screenshot(path=str(PICTURES / f"web-{name}.png"))


@full_size
def test_a_click_on_the_map_shows_the_node(stage: Stage) -> None:
    stage.open("/map")
    stage.page.click("svg.map a[href='/map?node=n2']")
    stage.page.wait_for_selector("#detail")
    assert "port 179 refuses connections" in stage.page.inner_text("#detail")


@full_size
def test_the_keyboard_suffices(stage: Stage) -> None:
    stage.open("/map")
    stage.page.keyboard.press("6")
    stage.page.wait_for_url("**/health")
    stage.page.wait_for_selector("main table")
    stage.page.keyboard.press("1")
    stage.page.wait_for_url("**/map")
    stage.page.wait_for_selector("svg.map a")
    names = set[str]()
    for _ in range(60):
        stage.page.keyboard.press("Tab")
        names.add(
            stage.page.evaluate(
                "() => document.activeElement.getAttribute('aria-label')"
                " || document.activeElement.textContent"
            )
        )
    assert any(name.startswith("n2: partly down") for name in names)
    assert any(name.startswith("Health") for name in names)
    assert any(name.startswith("To the view") for name in names)


@full_size
def test_light_and_dark(stage: Stage) -> None:
    stage.open("/health")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    light = stage.page.evaluate(ground)
    stage.page.keyboard.press("d")
    stage.page.wait_for_selector("body.body--dark")
    assert stage.page.evaluate(ground) != light
    stage.page.emulate_media(color_scheme="light")
    stage.open("/health")
    assert stage.page.evaluate(ground) == light
    stage.page.emulate_media(color_scheme="dark")
    stage.open("/health")
    stage.page.wait_for_selector("body.body--dark main table")


@full_size
def test_a_pasted_policy_is_planned_and_nothing_is_stored(stage: Stage) -> None:
    import yaml

    stage.open("/policy")
    stage.page.click("summary")
    closed = policy("closed", "all()", "lab", types=["Ingress"])
    stage.page.fill("textarea", yaml.safe_dump(closed))
    stage.page.get_by_role("button", name="Plan").click()
    stage.page.wait_for_selector("text=What would change")
    text = stage.page.inner_text("main")
    assert "DENIED" in text
    assert "end of tier default" in text
    assert not [key for key in stage.etcd.keys("/calico/") if "lab/closed" in key]


@full_size
def test_what_changes_is_shown_without_a_reload(stage: Stage) -> None:
    assert "n3" in stage.open("/health")
    gone = [Delete(ResourceKey("BGPPeer", "half"))]
    world.store(stage.etcd, list(gone))
    stage.page.wait_for_function(
        "() => !document.querySelector('main').textContent.includes('does not hold its end')"
    )
    assert stage.seen.complaints == []


@full_size
def test_a_script_that_came_in_does_not_run(stage: Stage) -> None:
    stage.open("/health")
    stage.page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.evil = 1';"
        " document.body.append(s); const i = document.createElement('img');"
        " i.src = 'http://evil.example/x.png'; document.body.append(i); }"
    )
    assert stage.page.evaluate("() => window.evil") is None
    assert any("Content Security Policy" in one for one in stage.seen.complaints)


@full_size
def test_no_canary_reaches_the_browser_by_any_view(stage: Stage) -> None:
    rule = {"action": "Allow", "metadata": {"annotations": {"apiKey": "canary-rule"}}}
    open_policy = policy("db", "role == 'db'", "shop", types=["Ingress"], ingress=[rule])
    (value,) = world_of([open_policy]).objects.values()
    annotated = world.node("n1", "a", routeReflectorClusterID="224.0.0.1")
    annotated["metadata"]["annotations"] = {"token": "canary-field"}
    (node,) = world_of([annotated]).objects.values()
    world.store(stage.etcd, [Put(key_of(value), value), Put(key_of(node), node)])
    for path, _ in STORIES:
        stage.open(path)
    stage.open("/policy?port=5432&source=lab&destination=shop")
    stage.page.wait_for_selector("text=db, ingress[0]")
    everything = "".join(stage.seen.bodies)
    assert len(everything) > 50_000
    assert "n2" in everything
    assert not [one for one in CANARIES if one in everything]
