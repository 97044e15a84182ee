"""What the verbs of the daemon work with, and the settings of this process.

Tested in tests/cni/test_own_machine.py and tests/cni/test_status.py.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from cni.node.cluster import Cluster
from cni.node.del_cache import DelCache
from cni.node.del_queue import DelQueue
from cni.node.felix_client import FelixClient
from cni.node.records import Records
from cni.node.released import Released
from cni.pods.pod_source import PodSource
from cni.request.errors import CNIError, Code
from cni.request.kubernetes_access import HOST
from cni.request.stores import StoreCheck
from cni.veth.veth_removal import VethRemover
from ipam.allocator.service import NodeAllocator
from libcalico.datastore.interface import Datastore
from libcalico.process import paths, tasks
from linux.conntrack import Forgetter
from linux.netlink import Socket

T = TypeVar("T")

DATASTORE_SECONDS = 10.0
"""How long an ADD waits for the datastore in all, unless the caller gives up earlier."""

RELEASE_SECONDS = 5.0
"""How long a DEL or an undo waits for the datastore before it goes to the journal."""

READY_SECONDS = 3.0
"""How long an ADD waits for the first snapshot after a start of the daemon."""


CHECK_SECONDS = 5.0
"""How long a CHECK waits for what felix repairs, and for the datastore (CHK-08, TIM-05)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Where things are; tests give other places. `host`: where a container has the host's files."""

    nodename_file: Path = paths.NODENAME
    mtu_file: Path = paths.MTU
    socket: Path = paths.CNI_SOCKET
    felix_socket: Path = paths.NODE_SOCKET
    endpoint_status: Path = paths.ENDPOINT_STATUS
    pending: Path = paths.CNI_PENDING
    status: Path = paths.STATUS
    health_host: str = "localhost"
    health_port: int = paths.CNI_PORT
    datastore_seconds: float = DATASTORE_SECONDS
    release_seconds: float = RELEASE_SECONDS
    check_seconds: float = CHECK_SECONDS
    attachments: Path = paths.CNI_ATTACHMENTS
    cri_socket: Path | None = None
    collect_gap: float = 10.0
    host: Path = HOST


class Number:
    """A number in a file, read again when the file is another one."""

    def __init__(self) -> None:
        self._seen: tuple[int, ...] = ()
        self._number = 0

    def __call__(self, file: Path) -> int:
        """The number in `file`. Raises OSError, or ValueError for what is no number."""
        status = os.stat(file)
        seen = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
        if seen != self._seen:
            self._number = int(file.read_text().strip())
            self._seen = seen
        return self._number


@dataclass(slots=True)
class DaemonContext:
    """Shared by all calls of one daemon. `done_once`: profiles ensured, warnings logged."""

    settings: Settings
    node: str
    store: Datastore
    allocator: NodeAllocator
    cluster: Cluster
    felix: FelixClient
    pod_source: PodSource
    journal: DelQueue
    host: Socket
    check_store: StoreCheck = field(default_factory=lambda: StoreCheck(None))
    del_cache: DelCache = field(default_factory=DelCache)
    released: Released = field(default_factory=Released)
    flows: Forgetter = field(default_factory=Forgetter)
    mtu: Number = field(default_factory=Number)
    done_once: set[str] = field(default_factory=set)
    records: Records = field(init=False)
    undoing: set[asyncio.Task[object]] = field(default_factory=set)
    threads: ThreadPoolExecutor = field(
        # Removing a link waits 20 ms for the kernel; more threads than this only queue there.
        default_factory=lambda: ThreadPoolExecutor(8, thread_name_prefix="kernel")
    )
    veth_remover: VethRemover = field(init=False)

    def __post_init__(self) -> None:
        self.records = Records(self.settings.attachments)
        self.veth_remover = VethRemover(
            lambda function, *arguments: asyncio.get_running_loop().run_in_executor(
                self.threads, function, *arguments
            )
        )

    async def in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        """Run a blocking function in a thread, to its end even if the caller is cancelled."""
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self.threads, function, *arguments))

    def keep(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Start work that must end even if its caller is cancelled (an undo)."""
        task = tasks.start(work, "work that outlives its caller")
        self.undoing.add(task)
        task.add_done_callback(self.undoing.discard)
        return task


async def require_known_node(
    context: DaemonContext, document: Mapping[str, object], *, settled: bool = True
) -> None:
    """Wait until the datastore was read and, with `settled`, no address is a running pod's.

    Raises CNIError 11 where that lasts too long, or as `check_node_known`.
    """
    seconds = min(READY_SECONDS, context.settings.datastore_seconds)
    await context.cluster.require_ready(seconds)
    if settled:
        await context.cluster.require_settled(seconds)
    await context.cluster.find_node()
    check_node_known(document, context.cluster, context.node)


def check_node_known(document: Mapping[str, object], cluster: Cluster, node: str) -> None:
    """Raise CNIError without a Node of this name: 7 where the configuration names it, else 11.

    To be asked once the datastore was read. `node` is the daemon's, and the configuration's where
    it names one (M-92). Of a Node that was deleted the addresses may be free by mistake: nothing is
    given out before calico-node has written it again.
    """
    if cluster.has_node(node):
        return
    if cluster.unreadable:
        raise CNIError(
            Code.TRY_AGAIN_LATER,
            f"the Node resource of this node, {node!r}: {cluster.unreadable}",
            "no pod starts here until it is mended",
        )
    if not document.get("nodename"):
        raise CNIError(
            Code.TRY_AGAIN_LATER,
            f"there is no Node resource of this node, {node!r}: no pod starts here",
            "it was deleted, and calico-node writes it again while it runs on this host",
        )
    raise CNIError(
        Code.INVALID_CONFIG,
        f"nodename {node!r} names no node: there is no Node resource of this name",
        "check that calico-node is running on this host and uses the same name",
    )


def check_node_name(document: Mapping[str, object], settings: Settings, node: str) -> None:
    """Raise CNIError when the configuration or the node cannot say what this node is called.

    The file must exist unless `nodename_file_optional` is true (CAL-05), and a name that the
    configuration gives must be the daemon's: it cannot serve two nodes.
    """
    given = document.get("nodename")
    if isinstance(given, str) and given and given != node:
        raise CNIError(
            Code.INVALID_CONFIG,
            f"nodename {given!r} names no node of this daemon: it serves {node!r} and no other",
        )
    other = document.get("nodename_file")
    file = Path(other) if isinstance(other, str) and other else settings.nodename_file
    if document.get("nodename_file_optional") is True or os.path.exists(file):
        return
    raise CNIError(
        Code.TRY_AGAIN_LATER,
        f"{file}: no such file or directory: check that calico-node is running on this host",
    )
