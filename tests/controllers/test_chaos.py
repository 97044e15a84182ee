"""Controllers killed while they write, an API that dies, history that is forgotten: in the end the
datastore holds what a fresh start would write, and a fresh start writes nothing."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from controllers.mirror.mirror import Mirror
from controllers.mirror.mirrored_kinds import NAMESPACE_PROFILES, POLICIES
from libcalico.conversion import convert
from libcalico.datastore.interface import Selection
from tests.controllers.running import running
from tests.controllers.test_mirrors import DEFAULT_DENY, FROM_NAMESPACE, POLICY_PATH
from tests.controllers.test_process import Running, start, wait
from tests.support.apiserver import ApiServer
from tests.support.etcd import Etcd
from tests.support.patience import HANG, until

__all__ = ["start"]

SPACES = ("chaos-a", "chaos-b")
ROUNDS = 6


def stir(cluster: ApiServer, chance: random.Random) -> None:
    """Change some policies, in whatever way."""
    for _ in range(15):
        path = POLICY_PATH.format(chance.choice(SPACES))
        name = f"p{chance.randrange(12)}"
        if chance.random() < 0.3:
            cluster.delete(f"{path}/{name}")
        else:
            spec = chance.choice([DEFAULT_DENY, FROM_NAMESPACE])
            cluster.delete(f"{path}/{name}")
            cluster.ensure(path, {"metadata": {"name": name}, "spec": spec})


def wanted(cluster: ApiServer) -> dict[str, Any]:
    """What a fresh start would have, by namespace and name."""
    items = cluster.call("GET", "/apis/networking.k8s.io/v1/networkpolicies")["items"]
    found = {}
    for item in items:
        document = {**item, "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
        policy: Any = convert(document).resource
        found[f"{policy.metadata.namespace}/{policy.metadata.name}"] = policy.spec
    return found


@pytest.mark.asyncio
async def test_whatever_dies_in_between_the_end_is_that_of_a_fresh_start(
    cluster: ApiServer, stored: Etcd, start: Callable[..., Running]
) -> None:
    chance = random.Random(9)
    for space in SPACES:
        cluster.namespace(space)
    one = start("c0")
    for number in range(ROUNDS):
        stir(cluster, chance)
        match number % 3:
            case 0:
                # In the middle of its writes.
                wait(lambda: stored.keys("/calico/resources/v3/projectcalico.org/networkpol"))
                one.stop(signal.SIGKILL)
                one = start(f"c{number + 1}")
            case 1:
                cluster.restart()
            case 2:
                cluster.forget_history()
    stir(cluster, chance)
    end = wanted(cluster)
    assert len(end) > 5
    async with stored.connect() as store:

        async def there() -> dict[str, Any]:
            listing = await store.list(Selection("NetworkPolicy"))
            return {
                f"{entry.key.namespace}/{entry.key.name}": entry.value.spec  # type: ignore[union-attr]
                for entry in listing.entries
            }

        # Its profiles, too: those it looks at before it is ready.
        await until(lambda: one.check("-r") == (0, "Ready"), one.log.read_text)
        found, ends = await there(), time.monotonic() + HANG
        while found != end:
            assert time.monotonic() < ends, one.log.read_text()[-2000:]
            await asyncio.sleep(0.1)
            found = await there()
        one.stop()
        client = cluster.client()
        families: list[Any] = [POLICIES, NAMESPACE_PROFILES]
        fresh: list[Any] = [Mirror(family, client, store) for family in families]
        async with running(*fresh):
            await until(lambda: all(part.in_sync for part in fresh))
            assert sum(part.writes for part in fresh) == 0
        await client.close()
