"""What one node lists when it starts, and what that costs, for `./run bench fanout`.

Lists are asked for in felix's own words and read to their end. Nothing is decoded but where the
next page begins.
"""

from __future__ import annotations

import http.client
import re
import zlib
from contextlib import closing
from dataclasses import dataclass

from tests.bench._fanout_api import (
    FELIX,
    MODES,
    POD_PATH,
    ApiWorld,
    Mode,
    each,
    followed,
    head,
    watch,
)
from tests.bench._fanout_filling import connect
from tests.bench._fanout_pods import JSON
from tests.bench._fanout_world import Json, say

PAGE = 500
NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Way:
    """A way to list: what is accepted, at which revision (`0`: as the cache has it), in pages."""

    mode: Mode = MODES[FELIX]
    gzip: bool = True
    revision: str = ""
    page: int = PAGE


WAYS = {
    "felix": Way(),
    "not packed": Way(gzip=False),
    "from the cache": Way(revision="0"),
    "from the cache, one page": Way(revision="0", page=0),
    "metadata": Way(MODES["metadata"]),
    "metadata protobuf": Way(MODES["metadata protobuf"]),
    "metadata protobuf, not packed": Way(MODES["metadata protobuf"], gzip=False),
    "protobuf": Way(MODES["whole protobuf"]),
    "placed, running": Way(MODES["whole, placed, running"]),
    "streaming": Way(MODES["whole, streaming list"], gzip=False),
}


def cold(place: ApiWorld) -> Json:
    """One node reads everything as felix does, and its pods in each way."""
    rest = [(path, query) for path, query in followed() if path != POD_PATH]
    found: Json = {"pods": place.pods}
    found["all but pods"] = listed(place, Way(), rest)
    for name, way in WAYS.items():
        say(f"  list of {place.pods} pods, {name}")
        found[name] = listed(place, way, [(POD_PATH, way.mode.query)])
        say(f"    {found[name]}")
    both = [found["felix"], found["all but pods"]]
    size, used = (sum(one[key] for one in both) for key in ("mib", "server_cpu_s"))
    found["of 5000 nodes"] = of_all(size, used, 5000, place.size)
    return found


def of_all(mib: float, cpu_s: float, nodes: int, measured: int) -> Json:
    """What that is for all of so many nodes, with as many pods on each. Pure."""
    more = nodes / measured
    return {
        "mib_for_each": round(mib * more),
        "server_cpu_s_for_each": round(cpu_s * more, 1),
        "minutes_by_two_cores": round(nodes * cpu_s * more / 2 / 60),
        "minutes_by_10_gbit_s": round(nodes * mib * more * (1 << 20) * 8 / 10e9 / 60, 1),
    }


def listed(place: ApiWorld, way: Way, feeds: list[tuple[str, dict[str, str]]]) -> Json:
    """Lists of collections: bytes, and CPU for one time, as the mean of several."""
    rounds = max(2, min(20, 20_000 // place.pods))
    for path, query in feeds:
        read(place, way, path, query)
    before = place.used()
    size = sum(read(place, way, path, query) for path, query in feeds * rounds) / rounds
    after = place.used()
    return {
        "mib": round(size / (1 << 20), 2),
        "server_cpu_s": round(each(before, after, "server_cpu_s", rounds, 1), 3),
        "etcd_cpu_s": round(each(before, after, "etcd_cpu_s", rounds, 1), 3),
    }


def read(place: ApiWorld, way: Way, path: str, query: dict[str, str]) -> int:
    """All pages of one list; the bytes of their bodies."""
    if way.mode.initial:
        return _streamed(place, way, path)
    size, token = 0, ""
    with closing(connect(place.api)) as line:
        while True:
            asked = dict(query)
            asked |= {"limit": str(way.page)} if way.page else {}
            asked |= {"continue": token} if token else {}
            if way.revision and not token:
                asked["resourceVersion"] = way.revision
            answer = _answer(line, head(path, asked, way.mode.of_list, gzip=way.gzip))
            body = answer.read()
            size += len(body)
            token = _token(body, answer)
            if not token:
                return size


def _streamed(place: ApiWorld, way: Way, path: str) -> int:
    """Read what there is as the events of a watch."""
    nodes = place.nodes([watch(path, "", way.mode)])
    nodes.ask("mark")
    nodes.open(1, jitter_ms=0)
    size = nodes.report()["bytes"]
    place.end()
    return int(size)


def served(place: ApiWorld, path: str) -> bool:
    """Whether there is such a collection."""
    with closing(connect(place.api)) as line:
        return _answer(line, head(path, {"limit": "1"}, JSON)).status != NOT_FOUND


def _answer(line: http.client.HTTPSConnection, request: bytes) -> http.client.HTTPResponse:
    if line.sock is None:
        line.connect()
    line.sock.sendall(request)
    answer = http.client.HTTPResponse(line.sock, method="GET")
    answer.begin()
    if answer.status not in (200, NOT_FOUND):  # a collection need not be there
        raise RuntimeError(f"{request!r}: {answer.status} {answer.read()[:300]!r}")
    return answer


def _token(body: bytes, answer: http.client.HTTPResponse) -> str:
    """Where the next page begins."""
    if answer.headers.get("content-encoding") == "gzip":
        body = zlib.decompress(body, wbits=31)
    # JSON has it by name; in protobuf the token is base64 of JSON with a version first.
    found = re.search(rb'"continue":"([^"]+)"|(eyJ2IjoibWV0YS5rOHMuaW8v[A-Za-z0-9_=-]+)', body)
    return (found[1] or found[2]).decode() if found else ""
