"""A kube-apiserver with a cluster's objects, who watches and who changes them.

For `./run bench fanout --store kubernetes`. What felix follows is its own words (`followed`); which
of the ways to follow pods it takes today is `FELIX`.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from felix.calc.graph import selections
from libcalico.datastore.kubernetes.table import Table
from libcalico.kubernetes import protobuf
from tests.apiserver import kdd
from tests.bench import _fanout_pods as pods
from tests.bench._bgp_table import cpu
from tests.bench._fanout_filling import ask, connect, fill
from tests.bench._fanout_world import Json, Nodes, compiled, resident
from tests.support.apiserver import ADMIN, ApiServer

SOURCE = Path(__file__).with_name("_fanout_api_nodes.c")
PODS_A_NODE = 30
WRITERS = 8
POD_PATH = "/api/v1/pods"
PROTOBUF = "application/vnd.kubernetes.protobuf"
OF_METADATA = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PLACED = "spec.nodeName!="
RUNS = "status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to ask for all pods. `told`: how many events of a start and of an end."""

    accept: str = "application/json"
    fields: str = ""
    initial: bool = False

    @property
    def told(self) -> tuple[int, int]:
        """Of a pod that is not placed nothing, and of one that has ended only that it has."""
        start, end = pods.EVENTS
        return start - (PLACED in self.fields), 2 if RUNS in self.fields else end

    @property
    def of_list(self) -> str:
        """What a list is accepted as, which has a kind of its own."""
        return self.accept.replace(";as=PartialObjectMetadata", ";as=PartialObjectMetadataList")

    @property
    def query(self) -> dict[str, str]:
        """What restricts the pods."""
        return {"fieldSelector": self.fields} if self.fields else {}


FELIX = "whole protobuf, placed, running"
"""What felix asks today."""
_METADATA, _BINARY = "application/json" + OF_METADATA, PROTOBUF + OF_METADATA
MODES = {
    "whole": Mode(),
    "metadata": Mode(_METADATA),
    "metadata protobuf": Mode(_BINARY),
    "whole protobuf": Mode(PROTOBUF),
    FELIX: Mode(protobuf.ACCEPT, f"{PLACED},{RUNS}"),
    "whole, placed, running": Mode(fields=f"{PLACED},{RUNS}"),
    "metadata, placed": Mode(_METADATA, PLACED),
    "metadata, placed, running": Mode(_METADATA, f"{PLACED},{RUNS}"),
    "metadata protobuf, placed": Mode(_BINARY, PLACED),
    "metadata protobuf, placed, running": Mode(_BINARY, f"{PLACED},{RUNS}"),
    "whole, streaming list": Mode(initial=True),
}
"""`placed`: pods that have a node. `running`: pods that have not ended."""


def followed() -> list[tuple[str, dict[str, str]]]:
    """The collections that felix lists and watches, and with which parameters: its own words."""
    table = Table()
    found = []
    for selection in selections():
        for mapping in table.of_family(selection.family):
            asked = mapping.asked(selection)
            found.append((mapping.collection.path(asked.namespace), dict(asked.parameters)))
    return found


def head(path: str, query: Json, accept: str, *, gzip: bool = False) -> bytes:
    """A GET as felix sends it. Pure."""
    lines = [f"GET {path}?{urlencode(query)} HTTP/1.1", "host: bench", f"accept: {accept}"]
    lines += ["user-agent: muslin/bench", f"authorization: Bearer {ADMIN}"]
    lines += ["accept-encoding: gzip"] if gzip else []
    return "\r\n".join([*lines, "", ""]).encode()


def watch(path: str, revision: str, mode: Mode, query: Json | None = None) -> bytes:
    """The request of a watch. Pure."""
    asked = {**mode.query, **(query or {}), "watch": "true", "allowWatchBookmarks": "true"}
    asked |= {"timeoutSeconds": "3600", "resourceVersion": revision}
    if mode.initial:
        asked |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        del asked["resourceVersion"]
    return head(path, asked, mode.accept)


class Writer:
    """One connection that has pods start and end in turn."""

    def __init__(self, world: ApiWorld, first: int, step: int) -> None:
        self._world, self._next, self._step = world, first, step
        self._oldest = first
        self._line = connect(world.api)
        self._turn = 0

    def reconnect(self) -> None:
        """The API closes what rests for a while."""
        self._line.close()

    def change(self) -> None:
        """The next change: a start, or the end of the pod that is oldest."""
        self._turn += 1
        if self._turn % 2:
            self.begin()
            return
        for call in pods.end(self._oldest):
            ask(self._line, call())
        self._oldest += self._step

    def begin(self) -> None:
        """One more pod starts."""
        for call in pods.start(self._next, pods.node(self._next % self._world.size)):
            ask(self._line, call())
        self._next += self._step


class ApiWorld:
    """The servers; `size` nodes with their pods and what goes with them; writers."""

    def __init__(self, api: ApiServer, folder: Path, size: int, pods_a_node: int) -> None:
        self.api, self.size, self.pods = api, size, size * pods_a_node
        self._folder = folder
        self._program = compiled(folder, SOURCE, "-l:libssl.so.3")
        self.processes: list[Nodes] = []
        kdd.install(api)
        fill(api, size, self.pods)
        first = self.pods + 1000
        self._writers = [Writer(self, first + number, WRITERS) for number in range(WRITERS)]
        for one in self._writers:
            one.begin()

    def revision(self, path: str = POD_PATH) -> str:
        """The present one."""
        found: str = self.api.call("GET", f"{path}?limit=1")["metadata"]["resourceVersion"]
        return found

    def nodes(self, requests: Sequence[bytes]) -> Nodes:
        """A process that stands for watchers, which send these requests in turn."""
        file = self._folder / f"requests{len(self.processes)}"
        file.write_bytes(b"".join(requests))
        made = Nodes(self._program, file, [f"127.0.0.1:{self.api.port}"])
        self.processes.append(made)
        return made

    def write(self, changes: int, a_second: float = 0.0) -> float:
        """So many changes, half of them starts; returns the seconds until the last is written.

        A writer's start is followed by its end, so that one or two changes are one writer's.
        """
        begun = time.monotonic()
        failed: list[BaseException] = []

        def work(number: int) -> None:
            try:
                self._writers[number].reconnect()
                for turn in (one for one in range(changes) if one // 2 % WRITERS == number):
                    if a_second and (wait := begun + turn / a_second - time.monotonic()) > 0:
                        time.sleep(wait)
                    self._writers[number].change()
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(one,)) for one in range(WRITERS)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        if failed:
            raise failed[0]
        return time.monotonic() - begun

    def used(self) -> Json:
        """Seconds of CPU and MiB of the API server and of its etcd."""
        server, etcd = self.api.pid, self.api.etcd.pid
        return {
            "server_cpu_s": cpu([server]),
            "etcd_cpu_s": cpu([etcd]),
            "server_rss_mib": round(resident(server)),
            "etcd_rss_mib": round(resident(etcd)),
        }

    def end(self) -> None:
        """End the watchers."""
        while self.processes:
            self.processes.pop().end()


def each(before: Json, after: Json, name: str, count: int, unit: float) -> float:
    """What one of so many cost, of two answers of `used`. Pure."""
    return float(round((after[name] - before[name]) / count * unit, 3))


@contextmanager
def api_world(folder: Path, size: int, pods_a_node: int = PODS_A_NODE) -> Iterator[ApiWorld]:
    """A server with a cluster of `size` nodes."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    api = ApiServer(folder / f"api{size}")
    made: ApiWorld | None = None
    try:
        made = ApiWorld(api.start(), folder, size, pods_a_node)
        yield made
    finally:
        if made is not None:
            made.end()
        api.stop()
