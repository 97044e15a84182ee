"""What runs keeps what it has: when its ADD is repeated and fails, when policy only goes before it.

The world is that of tests/cni/test_attachment_model.py, without trouble.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from cni.request.errors import CNIError, Code
from cni.request.request import parse_request
from cni.socket.trace import Trace
from libcalico.datastore.interface import Delete, Entry
from libcalico.errors import InvalidValue
from libcalico.model.keys import BlockKey, HandleKey, Key
from tests.cni.test_attachment_model import Container, calm


@pytest.mark.parametrize(
    "error",
    [
        InvalidValue("spec.node", "?", "cannot be read"),
        CNIError(Code.INVALID_CONFIG, "played"),
        RuntimeError("a bug"),
    ],
)
@pytest.mark.asyncio
async def test_a_repeated_add_that_meets_what_cannot_be_read_leaves_the_pod_what_it_has(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ADD-07: the journal would take address and link of the pod that runs."""
    world = await calm(tmp_path, monkeypatch)
    (pod,) = world.containers
    await world.add(pod)
    assert pod.up
    read = world.store.get_many

    async def broken(keys: Sequence[Key]) -> dict[Key, Entry | None]:
        raise error

    world.store.get_many = broken  # type: ignore[method-assign]
    with suppress(RuntimeError):
        await world.add(pod)
    world.store.get_many = read  # type: ignore[method-assign]
    assert world.context.journal.count() == 0
    await world.journal()
    world.look()
    await world.finish()


@pytest.mark.parametrize("replayed", [False, True])
@pytest.mark.asyncio
async def test_policy_only_leaves_an_address_to_the_plugin_that_took_it(
    replayed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CNI-81: a DEL of the list begins with `calico`, and the interface still has the address."""
    world = await calm(tmp_path, monkeypatch)
    (pod,) = world.containers
    await world.add(pod, "net2")
    taken = world.request("DEL", pod, "net2")
    document = {k: v for k, v in taken.config.document.items() if k != "ipam"}
    request = parse_request("calico", dict(taken.env), json.dumps({**document, "type": "calico"}))
    if replayed:
        await world.dispatcher.replay(request)
    else:
        await world.dispatcher.delete(request, Trace("DEL"))
    world.look()
    await world.delete(pod, "net2")
    await world.finish()


@pytest.mark.asyncio
async def test_a_late_del_forgets_no_flow_of_the_pod_that_has_the_address_by_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator deleted the block of an older sandbox, whose DEL comes after all."""
    world = await calm(tmp_path, monkeypatch)
    first, second, third = [Container(f"c{number}", "one") for number in (1, 2, 3)]
    world.containers[:] = [first, second, third]
    for container, address in ((first, "10.0.0.0"), (second, "10.0.0.1"), (third, "10.0.0.0")):
        world.wants["one"] = {"ipAddrs": [address]}
        await world.add(container)
        assert container.up
        if container is not third:
            container.over, container.up = True, {}
            keys = [key for key in world.store.entries if isinstance(key, (BlockKey, HandleKey))]
            await world.store.commit([Delete(key, None) for key in keys])
    await world.delete(first, "eth0")
    world.look()
    await world.stop()
