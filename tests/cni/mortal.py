"""A daemon in a process of its own that kills itself at a named instant of its next ADD.

    python -m tests.cni.mortal SETTINGS_JSON ENDPOINT INSTANT

An instant is `before:NAME` or `after:NAME` of one of the functions below, or `step:N`: before the
Nth thing that its event loop does after the call was read. `never` just serves.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from cni.node.daemon_context import Settings
from cni.node.felix_client import FelixClient
from cni.server import server
from cni.server.daemon import Daemon
from cni.verbs import add
from cni.veth import pod_end, veth_removal, wiring
from ipam.allocator.service import NodeAllocator
from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import connect
from libcalico.datastore.etcd.store import EtcdDatastore
from tests.support.patience import HANG

PLACES: dict[str, tuple[Any, str]] = {
    "submit": (NodeAllocator, "submit"),
    "offer": (FelixClient, "offer"),
    "create": (wiring, "create"),
    "configure": (pod_end, "configure"),
    "remove": (veth_removal.VethRemover, "remove"),
    "commit": (EtcdDatastore, "commit"),
    "in_force": (FelixClient, "in_force"),
    "result": (add, "_result"),
}


def die() -> None:
    """As `kill -9` from outside."""
    os.kill(os.getpid(), signal.SIGKILL)


def mine(place: str, when: str) -> None:
    """Make one function deadly."""
    owner, name = PLACES[place]
    real: Callable[..., Any] = getattr(owner, name)

    if inspect.iscoroutinefunction(real):

        async def deadly(*arguments: Any, **named: Any) -> Any:
            if when == "before":
                die()
            found = await real(*arguments, **named)
            die()
            return found

    else:

        def deadly(*arguments: Any, **named: Any) -> Any:  # type: ignore[misc]
            if when == "before":
                die()
            found = real(*arguments, **named)
            die()
            return found

    setattr(owner, name, deadly)


def count(steps: int) -> None:
    """Die after so many steps of the event loop, counted from the next call."""
    left = -1
    parse: Any = getattr(server, "parse_request")  # noqa: B009 - a name that it took from elsewhere
    run: Any = getattr(asyncio.Handle, "_run")  # noqa: B009

    def parsed(*arguments: Any) -> Any:
        nonlocal left
        left = steps
        return parse(*arguments)

    def counted(handle: asyncio.Handle) -> None:
        nonlocal left
        if left == 0:
            die()
        left -= 1
        run(handle)

    for owner, name, ours in ((server, "parse_request", parsed), (asyncio.Handle, "_run", counted)):
        setattr(owner, name, ours)


async def main() -> None:
    """Serve until the instant comes."""
    settings = msgspec.json.decode(
        sys.argv[1], type=Settings, dec_hook=lambda kind, text: kind(text)
    )
    store = await connect(
        DatastoreConfig(datastore_type="etcdv3", etcd_endpoints=sys.argv[2], timeout=HANG)
    )
    daemon = Daemon(store, "node1", settings)
    serving = asyncio.create_task(daemon.run())
    await asyncio.wait_for(daemon.context.cluster._in_sync.wait(), HANG)
    if sys.argv[3] != "never":
        when, _, place = sys.argv[3].partition(":")
        if when == "step":
            count(int(place))
        else:
            mine(place, when)
    print("ready", flush=True)
    await serving


if __name__ == "__main__":
    asyncio.run(main())
