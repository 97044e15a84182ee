"""A real browser on the page: Debian's chromium, driven by playwright; no browser is downloaded."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support import unhurried
from tests.support.etcd import Etcd
from tests.support.patience import HANG, wait_for

CHROMIUM = "/usr/bin/chromium"
SMALL = {"width": 1180, "height": 760}


def why_not() -> str:
    """Why there is no browser to test with; empty where there is one."""
    if not shutil.which(CHROMIUM):
        return "no browser: `apt-get install chromium`"
    for name in ("nicegui", "playwright"):
        if importlib.util.find_spec(name) is None:
            return f"the package {name} is not installed: `./run install`"
    return ""


needs_browser = pytest.mark.skipif(bool(why_not()), reason=why_not())


@contextmanager
def serving(
    folder: Path, environ: Mapping[str, str], arguments: Sequence[str] = ()
) -> Iterator[str]:
    """`calico-web` on a free port; gives its address, without a slash at the end."""
    log = folder / "web.log"
    told = {**os.environ, **environ, "HOME": str(folder)}
    program = unhurried.command("web.main", "web.facts.asking:SECONDS")
    command = [*program, "--port=0", *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=told,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip
    try:

        def address() -> str:
            assert process.poll() is None, log.read_text()
            told = [line for line in log.read_text().splitlines() if "the page is at" in line]
            return told[0].rpartition(" ")[2].rstrip("/") if told else ""

        yield wait_for(address, lambda: log.read_text())
    finally:
        process.terminate()
        try:
            process.wait(HANG)
        finally:
            process.kill()


@dataclass
class Seen:
    """Everything that came to the browser, and what it complained about."""

    complaints: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    bodies: list[str] = field(default_factory=list)

    def follow(self, page: Any) -> None:
        """Note what a page gets from now on."""
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._told)
        page.on("request", lambda one: self.hosts.add(one.url.split("/")[2]))
        page.on("response", self._answer)
        page.on("websocket", self._socket)

    def _told(self, message: Any) -> None:
        if message.type == "error":
            self.complaints.append(message.text)

    def _answer(self, response: Any) -> None:
        if "/_nicegui/" not in response.url and response.status == 200:
            self.bodies.append(response.text())
        self.bodies.append(str(response.headers))

    def _socket(self, socket: Any) -> None:
        socket.on("framereceived", lambda frame: self.bodies.append(str(frame)))


@contextmanager
def browsing() -> Iterator[Any]:
    """A page of a headless browser with a clean profile."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            page = browser.new_page(viewport=SMALL, color_scheme="light")
            page.set_default_timeout(HANG * 1000)
            yield page
        finally:
            browser.close()


def environment(etcd: Etcd) -> dict[str, str]:
    """The datastore by the environment, though this machine may have a file of settings."""
    return {**etcd.environment(), "KUBECONFIG": ""}
