"""Calico's Goldmane and our aggregator side by side, each asked by Calico's own client.

Both are processes with the same certificates. Flows, requests and answers are the API's messages as
JSON, so that nothing of ours reads or writes them on the way.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from flows.place import Place
from lab.certificates import Certificates, make_certificates
from tests.flows.running import client_files
from tests.interop.driver import Driver, Refusal
from tests.support.patience import HANG, wait_for
from tests.support.ports import free_ports

OURS = (sys.executable, "-m", "flows.server.main")
Message = dict[str, Any]


@dataclass
class Server:
    """One of the two, and Calico's client of it."""

    place: Place
    driver: Driver

    def __call__(self, op: str, **request: Any) -> Message:
        """What the client gets for a request."""
        return self.driver(op, request=request)

    def push(self, flows: list[Message]) -> None:
        """Send flows by Calico's sender, and wait until they are in lists: they come in order, and
        the last one has a key of its own."""
        last = flows[-1]["Key"]["source_name"]
        self.driver("push", flows=flows)
        only = {"source_names": [{"value": last}]}
        wait_for(lambda: self("list", filter=only)["items"], "the last flow is listed")

    def wait(self) -> None:
        """Until it answers: Goldmane begins with an interval."""
        wait_for(self._answers, f"{self.place.address} answers", pause=0.2)

    def _answers(self) -> bool:
        try:
            self("list")
        except Refusal:
            return False
        return True


class Pair:
    """Both of them, started with certificates of one authority."""

    def __init__(self, goldmane: str, driver: str, folder: Path, stack: ExitStack) -> None:
        self.certificates = make_certificates(folder / "tls")
        self._driver, self._stack = driver, stack
        self._our_process = stack.enter_context(ExitStack())
        self.ours = self._started(OURS, self._our_process)
        self.theirs = self._started((goldmane,), stack)

    def _started(self, program: tuple[str, ...], processes: ExitStack) -> Server:
        (port,) = free_ports(1)
        processes.enter_context(_process(program, _settings(self.certificates, port)))
        place = Place(f"127.0.0.1:{port}", *map(str, client_files(self.certificates)))
        arguments = (place.address, place.ca, place.certificate, place.key)
        server = Server(place, self._stack.enter_context(Driver(self._driver, {}, arguments)))
        server.wait()
        return server

    def restart_ours(self) -> None:
        """End our process and start another one in its place."""
        self._our_process.close()
        port = int(self.ours.place.address.rpartition(":")[2])
        self._our_process.enter_context(_process(OURS, _settings(self.certificates, port)))
        self.ours.wait()

    def push(self, flows: list[Message]) -> None:
        """Send the same flows to both."""
        self.ours.push(flows)
        self.theirs.push(flows)

    def both(self, op: str, **request: Any) -> tuple[Message, Message]:
        """What each answers."""
        return self.ours(op, **request), self.theirs(op, **request)


@contextmanager
def pair(goldmane: str, driver: str, folder: Path) -> Iterator[Pair]:
    """Start `goldmane` and `calico-goldmane`, and a driver for each."""
    with ExitStack() as stack:
        yield Pair(goldmane, driver, folder, stack)


def _settings(certificates: Certificates, port: int) -> dict[str, str]:
    return os.environ | {
        "PORT": str(port),
        "HEALTH_ENABLED": "false",
        "SERVER_CERT_PATH": str(certificates.server_cert),
        "SERVER_KEY_PATH": str(certificates.server_key),
        "CA_CERT_PATH": str(certificates.ca),
        "LOG_LEVEL": "error",
    }


@contextmanager
def _process(program: tuple[str, ...], environment: Mapping[str, str]) -> Iterator[None]:
    process = subprocess.Popen(
        program, env=dict(environment), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@contextmanager
def whisker(program: str, both: Pair, server: Server) -> Iterator[Callable[..., Any]]:
    """Start the server of Calico's Whisker before one of the two; gives what asks it for JSON."""
    (port,) = free_ports(1)
    files, place = both.certificates, server.place
    environment = os.environ | {
        "GOLDMANE_HOST": place.address,
        "HOST": "127.0.0.1",
        "PORT": str(port),
        "CA_CERT_PATH": place.ca,
        "TLS_CERT_PATH": place.certificate,
        "TLS_KEY_PATH": place.key,
        "SERVER_TLS_CERT_PATH": str(files.server_cert),
        "SERVER_TLS_KEY_PATH": str(files.server_key),
    }
    context = ssl.create_default_context(cafile=place.ca)

    def ask(path: str, **parameters: str) -> Any:
        asked = f"https://127.0.0.1:{port}/{path}?{urlencode(parameters)}"
        with urlopen(asked, context=context, timeout=HANG) as answer:
            return json.load(answer)

    def answers() -> bool:
        try:
            ask("flows")
        except OSError:
            return False
        return True

    with _process((program,), environment):
        wait_for(answers, "Whisker answers", pause=0.2)
        yield ask
