"""`./run bench web`: the page at 1,000 nodes and 10,000 pods, in a real browser.

The first view is the map: from the request until every node is on it, by the browser's own clock,
with an empty cache each time. The server has read the datastore by then; how long that took, and
the processor time of each view, stand beside. Needs chromium and the extra `web`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench import _reporting
from tests.support.etcd import Etcd
from tests.web import large, world
from tests.web.browser import browsing, environment, serving, why_not

Json = dict[str, Any]
SETTLED = "() => document.querySelectorAll('svg.map a').length >= %d"


def first_views(url: str, nodes: int, rounds: int) -> Json:
    """Seconds from the request to the whole map, with an empty cache each time."""
    taken, sent, requests = [], 0, 0
    for _ in range(rounds):
        with browsing() as page:
            count = [0]
            page.on("request", lambda _one, count=count: count.__setitem__(0, count[0] + 1))
            page.goto(f"{url}/map")
            page.wait_for_function(SETTLED % nodes)
            taken.append(page.evaluate("() => performance.now()") / 1000)
            sent = len(page.content())
            requests = count[0]
    return {
        "median_s": round(statistics.median(taken), 3),
        "min_s": round(min(taken), 3),
        "max_s": round(max(taken), 3),
        "rounds": rounds,
        "document_bytes": sent,
        "requests": requests,
    }


def of_views(etcd: Etcd) -> Json:
    """Processor seconds of a reading and of each view, in this process."""
    from calicoctl.session import Options
    from web.facts.reading import Source, read
    from web.pages.shown import VIEWS

    os.environ.update(environment(etcd))
    began = time.process_time()
    facts = read(Source(Options(), {}))
    spent = {"reading": time.process_time() - began}
    began = time.process_time()
    read(Source(Options(), {}), facts)
    spent["reading again"] = time.process_time() - began
    for view in VIEWS:
        if view.show is not None:
            began = time.process_time()
            view.show(facts, {})
            spent[view.title] = time.process_time() - began
    return {name: round(seconds, 3) for name, seconds in spent.items()}


def main(arguments: list[str] | None = None) -> int:
    """The bench."""
    parser = argparse.ArgumentParser(prog="./run bench web", description=__doc__)
    _reporting.add_arguments(parser)
    parser.add_argument("--nodes", type=int, default=large.NODES)
    parser.add_argument("--pods", type=int, default=large.PODS)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    if lacking := why_not():
        print(lacking, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        etcd = Etcd(Path(folder) / "etcd").start()
        try:
            world.store(etcd, large.changes(options.nodes, options.pods))
            with serving(Path(folder), environment(etcd)) as url:
                with browsing() as page:
                    page.goto(f"{url}/map")
                    page.wait_for_function(SETTLED % options.nodes)
                views = first_views(url, options.nodes, options.rounds)
            spent = of_views(etcd)
        finally:
            etcd.stop()
    result: Json = {
        "nodes": options.nodes,
        "pods": options.pods,
        "load": os.getloadavg()[0],
        "first_view": views,
        "cpu_s": spent,
    }
    _reporting.conclude("web", result, options, lambda one: json.dumps(one, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
