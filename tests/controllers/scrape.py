"""Metrics of a running process of the controllers."""

from __future__ import annotations

import re
import urllib.request

from msgspec.structs import replace

from controllers.settings import default
from libcalico.datastore.interface import Put
from libcalico.model.keys import ResourceKey
from tests.support.patience import HANG

LINE = re.compile(r'muslin_controllers_(\w+)\{controller="(\w+)"\} (\S+)')


def with_metrics(port: int) -> Put:
    """The configuration as a process makes it, but with metrics on this port."""
    made = default()
    spec = replace(made.spec, prometheusMetricsPort=port)
    return Put(ResourceKey("KubeControllersConfiguration", "default"), replace(made, spec=spec))


def metric(port: int, name: str) -> dict[str, float]:
    """By controller; empty while nothing is served."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=HANG) as answer:
            text = answer.read().decode()
    except OSError:
        return {}
    return {part: float(value) for kind, part, value in LINE.findall(text) if kind == name}


def in_sync(port: int) -> bool:
    """Whether every controller has read both sides and nothing waits."""
    found = metric(port, "in_sync")
    return bool(found) and all(found.values())
