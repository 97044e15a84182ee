"""DS-3 over a backup: whoever follows a store that was put back comes to what it holds now.

etcdctl makes and restores the snapshots. A proxy keeps the follower away until the store has gone
on, so that no revision tells that it was ever behind.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import connect
from tests.libcalico.test_syncer import following, handle, put
from tests.support.etcd import CALL, Etcd
from tests.support.proxy import Proxy

pytestmark = pytest.mark.asyncio
HANDLES = "/calico/ipam/v2/handle"


@pytest.mark.promise("M-126")
@pytest.mark.parametrize("token", ["etcd-cluster", "restored"])
async def test_a_store_that_was_put_back_and_went_on_is_listed_anew(
    private_etcd: Etcd, tmp_path: Path, token: str
) -> None:
    """With the token of before the elections tell, which a restored member counts anew."""
    if token == "etcd-cluster":
        private_etcd.restart()
    proxy = await Proxy(int(private_etcd.reached.rpartition(":")[2])).start()
    endpoint = f"http://127.0.0.1:{proxy.port}"
    store = await connect(
        DatastoreConfig(datastore_type="etcdv3", etcd_endpoints=endpoint, timeout=CALL)
    )
    try:
        await put(store, "kept", 1)
        async with following(store) as view:
            await view.until(lambda: handle("kept") in view.state, "snapshot")
            private_etcd.save(tmp_path / "backup")
            await put(store, "lost")
            await put(store, "kept", 2)
            await view.until(lambda: b"2" in view.state[handle("kept")], "the change")
            await view.until(lambda: handle("lost") in view.state, "the new one")
            view.revisions.clear()
            behind = private_etcd.revision()
            proxy.cut()
            await view.until(lambda: not view.syncer.connected, "noticing")
            private_etcd.put_back(tmp_path / "backup", token)
            private_etcd.start()
            for number in range(5):
                private_etcd.put(f"{HANDLES}/new{number}", '{"block":{},"deleted":false}')
            assert private_etcd.revision() > behind
            proxy.mend()
            await view.until(lambda: handle("lost") not in view.state, "what was lost is gone")
            await view.until(lambda: b"1" in view.state[handle("kept")], "the older value")
            wanted = {handle("kept"), *(handle(f"new{number}") for number in range(5))}
            await view.until(lambda: set(view.state) == wanted, "what is there now")
            await put(store, "after")
            await view.until(lambda: handle("after") in view.state, "watching on")
    finally:
        await store.close()
        await proxy.stop()
