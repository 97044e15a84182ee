"""What the tests of start-up do again and again."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from node import startup
from tests.support.etcd import Etcd
from tests.support.patience import patient

RESOURCES = "/calico/resources/v3/projectcalico.org/"
CALICO_NODE = [sys.executable, "-m", "node.main"]


def start(environ: dict[str, str], **more: str) -> str:
    return asyncio.run(startup.start_up(environ | more))[0]


def resource(etcd: Etcd, path: str) -> Any:
    raw = etcd.get(RESOURCES + path)
    return json.loads(raw) if raw else None


def wait_for(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + patient(seconds)
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
