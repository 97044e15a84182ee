"""What the tests of start-up do again and again."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from node.start import startup
from tests.support.etcd import Etcd

RESOURCES = "/calico/resources/v3/projectcalico.org/"
CALICO_NODE = [sys.executable, "-m", "node.main"]


def start(environ: dict[str, str], **more: str) -> str:
    return asyncio.run(startup.start_up(environ | more))[0]


def resource(etcd: Etcd, path: str) -> Any:
    raw = etcd.get(RESOURCES + path)
    return json.loads(raw) if raw else None
