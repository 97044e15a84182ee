"""Logins and roles on a real etcd: tokens that end, users that are edited, what a role forbids.

The roles are those of manifests/etcd-roles, made by that script with Debian's etcdctl.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from libcalico.apiconfig import DatastoreConfig
from libcalico.clusterinfo import ensure_initialized
from libcalico.datastore import connect
from libcalico.datastore.capabilities import Leasing
from libcalico.datastore.etcd import keys
from libcalico.datastore.interface import Datastore, Delete, Put, Selection
from libcalico.errors import LoginFailed, PermissionDenied
from libcalico.model import (
    AffinityKey,
    Block,
    BlockAffinity,
    BlockKey,
    Handle,
    HandleKey,
    IPAMConfigKey,
    Key,
    ResourceKey,
    codec,
)
from libcalico.model.keys import (
    FelixStatusKey,
    HostEndpointStatusKey,
    LifeSignKey,
    WorkloadStatusKey,
)
from libcalico.model.kinds import KINDS
from libcalico.model.resources.status import EndpointStatus, FelixStatus, LifeSign
from tests.support.etcd import CALL, Etcd
from tests.support.etcd_users import SCRIPT, enable_auth, end_logins, make_roles, with_user
from tests.support.patience import HANG

pytestmark = pytest.mark.asyncio

CIDR = ip_network("10.65.0.0/26")
SHARED = ["calico-node", "calico-controllers", "calicoctl-admin", "calicoctl-read"]
PASSWORD = "pass $(word) 'x'"


def login(server: Etcd, user: str, password: str = PASSWORD) -> DatastoreConfig:
    return DatastoreConfig(
        datastore_type="etcdv3",
        etcd_endpoints=server.endpoint,
        username=user,
        password=password,
        timeout=CALL,
    )


@asynccontextmanager
async def logged_in(server: Etcd, user: str, password: str = PASSWORD) -> AsyncIterator[Datastore]:
    store = await connect(login(server, user, password))
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """An etcd with the shipped roles, and one user for each."""
    flags = ["--auth-token=simple", "--bcrypt-cost=4"]
    server = Etcd(tmp_path_factory.mktemp("auth"), flags).start()
    assert make_roles(server) == SHARED
    assert make_roles(server) == SHARED  # again, without harm
    assert make_roles(server, "--node", "node1") == ["calico-node-node1"]
    enable_auth(server, {f"{role}:{PASSWORD}": role for role in (*SHARED, "calico-node-node1")})
    yield server
    server.stop()


@pytest.mark.promise("F-111")
async def test_a_token_that_ended_is_renewed_unseen(tmp_path: Path) -> None:
    with with_user(tmp_path) as (server, config):
        store = await connect(config)
        try:
            key = HandleKey("renewed")
            await store.commit([Put(key, Handle({}))])
            token = store._connection._login.token  # type: ignore[attr-defined]
            stream = store.watch([Selection("Handle")], 0)
            await anext(stream)
            for _ in range(2):
                end_logins(server)
                await store.commit([Put(key, Handle({}))])
                assert await store.get(key) is not None
                renewed = store._connection._login.token  # type: ignore[attr-defined]
                assert renewed != token
                token = renewed
            # A watch that began under an old token goes on, and a new one begins.
            assert [event.key for event in await asyncio.wait_for(anext(stream), HANG)][-1] == key
            again = store.watch([Selection("Handle")], 0)
            await asyncio.wait_for(anext(again), HANG)
        finally:
            await store.close()


async def test_a_wrong_password_is_said_at_once_and_not_shown(guarded: Etcd) -> None:
    async with logged_in(guarded, "calico-node", "geheim") as store:
        with pytest.raises(LoginFailed, match="'calico-node'") as problem:
            await store.get(HandleKey("a"))
        assert "geheim" not in str(problem.value)
    async with logged_in(guarded, "", "") as store:
        with pytest.raises(LoginFailed, match="set etcdUsername and etcdPassword"):
            await store.get(HandleKey("a"))


async def test_a_password_where_none_is_needed_does_no_harm(etcd: Etcd) -> None:
    async with logged_in(etcd, "anybody") as store:
        assert await store.get(HandleKey("a")) is None


async def test_login_begins_when_users_are_made_meanwhile(make_etcd: Callable[..., Etcd]) -> None:
    server = make_etcd("late", ["--bcrypt-cost=4"]).start()
    make_roles(server)
    async with logged_in(server, "calico-node") as store:
        await store.commit([Put(HandleKey("a"), Handle({}))])
        await asyncio.to_thread(enable_auth, server, {f"calico-node:{PASSWORD}": "calico-node"})
        await store.commit([Put(HandleKey("a"), Handle({}))])
        # Editing any user makes every token one of an old revision.
        server.ctl("user", "add", "other:x")
        assert await store.get(HandleKey("a")) is not None
        await store.commit([Put(HandleKey("a"), Handle({}))])


def resource(kind: str, name: str, namespace: str = "") -> tuple[Key, Any]:
    key = ResourceKey(kind, name, namespace)
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    spec = {"cidr": "10.0.0.0/16"} if kind in ("IPPool", "BlockAffinity") else {}
    tree = {"kind": kind, "apiVersion": "projectcalico.org/v3", "metadata": metadata, "spec": spec}
    return key, codec.resource_from_tree(tree)


NODE_OWN: list[tuple[Key, Any]] = [
    resource("WorkloadEndpoint", "node1-k8s-x-eth0", "default"),
    (BlockKey(CIDR), Block(cidr=str(CIDR), allocations=[None] * 64)),
    (HandleKey("net.c1"), Handle({str(CIDR): 1})),
    (AffinityKey("node1", CIDR), BlockAffinity(state="confirmed")),
    resource("Node", "node1"),
    resource("FelixConfiguration", "node.node1"),
    (FelixStatusKey("node1"), FelixStatus(time="2026-11-21T10:00:00Z", uptime=1)),
    (FelixStatusKey("node1", last=True), FelixStatus(time="2026-11-21T10:00:00Z", uptime=1)),
    (WorkloadStatusKey("node1", "k8s", "default/x", "eth0"), EndpointStatus("up")),
    (HostEndpointStatusKey("node1", "h"), EndpointStatus("up")),
]
NODE_SHARED: list[tuple[Key, Any]] = [
    resource("Node", "node2"),
    (AffinityKey("node2", CIDR), BlockAffinity(state="confirmed")),
    resource("ClusterInformation", "default"),
    resource("FelixConfiguration", "default"),
    resource("BGPConfiguration", "default"),
    resource("IPAMConfiguration", "default"),
    resource("IPPool", "default-ipv4-ippool"),
    resource("IPPool", "default-ipv6-ippool"),
    *(resource("Tier", name) for name in ("default", "kube-admin", "kube-baseline")),
]
NODE_NEVER: list[tuple[Key, Any]] = [
    *(
        resource(kind, "stolen", "default" if KINDS[kind].namespaced else "")
        for kind in KINDS
        if kind not in ("Node", "WorkloadEndpoint", "CalicoNodeStatus")
    ),
    (IPAMConfigKey(), codec.decode_value(IPAMConfigKey(), b"{}")),
    (AffinityKey("load-balancer", CIDR, "virtual"), BlockAffinity(state="confirmed")),
]


async def allowed(store: Datastore, key: Key, value: Any) -> bool:
    """Whether a write and a deletion pass; both or none."""
    try:
        await store.commit([Put(key, value)])
    except PermissionDenied as problem:
        if keys.path_of(key) not in str(problem):
            raise
        with pytest.raises(PermissionDenied):
            await store.commit([Delete(key)])
        return False
    await store.commit([Delete(key)])
    return True


async def verdicts(server: Etcd, user: str, objects: list[tuple[Key, Any]]) -> list[bool]:
    async with logged_in(server, user) as store:
        return [await allowed(store, key, value) for key, value in objects]


async def test_a_node_writes_what_is_a_nodes_and_nothing_else(guarded: Etcd) -> None:
    for objects, wanted in ((NODE_OWN, True), (NODE_SHARED, True), (NODE_NEVER, False)):
        found = await verdicts(guarded, "calico-node", objects)
        assert [str(key) for (key, _), ok in zip(objects, found, strict=True) if ok != wanted] == []


async def test_the_role_of_one_node_leaves_other_nodes_alone(guarded: Etcd) -> None:
    for objects, wanted in ((NODE_OWN, True), (NODE_SHARED, False), (NODE_NEVER, False)):
        found = await verdicts(guarded, "calico-node-node1", objects)
        assert [str(key) for (key, _), ok in zip(objects, found, strict=True) if ok != wanted] == []


async def test_a_node_keeps_its_lease_and_sees_how_long_one_lasts(guarded: Etcd) -> None:
    async with logged_in(guarded, "calico-node-node1") as store:
        assert isinstance(store, Leasing)
        key, lease = LifeSignKey("node1"), await store.grant(60)
        await store.commit([Put(key, LifeSign(host="a"), lease=lease)])
        assert await store.keep_alive(lease)
        assert await store.seconds_left(key) > 0


async def test_a_lease_is_kept_with_a_new_login(tmp_path: Path) -> None:
    with with_user(tmp_path) as (server, config):
        store = await connect(config)
        try:
            assert isinstance(store, Leasing)
            lease = await store.grant(60)
            for _ in range(2):
                end_logins(server)
                assert await store.keep_alive(lease)
        finally:
            await store.close()


async def test_admin_writes_all_and_read_writes_nothing(guarded: Etcd) -> None:
    everything = [*NODE_OWN, *NODE_SHARED, *NODE_NEVER]
    built_in = ResourceKey("Profile", "projectcalico-default-allow")
    everything = [(key, value) for key, value in everything if key != built_in]
    assert all(await verdicts(guarded, "calicoctl-admin", everything))
    assert not any(await verdicts(guarded, "calicoctl-read", everything))


async def test_controllers_write_policy_and_ipam_but_no_pools(guarded: Etcd) -> None:
    mine = [
        resource("Profile", "kns.default"),
        resource("NetworkPolicy", "knp.default.x", "default"),
        (BlockKey(CIDR), Block(cidr=str(CIDR), allocations=[None] * 64)),
        (HandleKey("h"), Handle({})),
        resource("Node", "gone"),
    ]
    assert all(await verdicts(guarded, "calico-controllers", mine))
    others = [resource("IPPool", "p"), resource("BGPPeer", "p"), resource("NetworkSet", "s", "d")]
    assert not any(await verdicts(guarded, "calico-controllers", others))


@pytest.mark.parametrize("user", [*SHARED, "calico-node-node1"])
async def test_every_role_reads_everything(guarded: Etcd, user: str) -> None:
    families = [*KINDS, "Block", "BlockAffinity", "Handle", "IPAMConfig", "FelixStatus"]
    async with logged_in(guarded, user) as store:
        for family in families:
            await store.list(Selection(family))
        await store.get_many([key for key, _ in NODE_OWN])
        stream = store.watch([Selection(family) for family in families], 1)
        assert list(await asyncio.wait_for(anext(stream), HANG)) == []


async def test_a_cluster_begins_under_the_role_of_nodes(guarded: Etcd) -> None:
    async with logged_in(guarded, "calico-node") as store:
        await ensure_initialized(store, "k8s,bgp")
    async with logged_in(guarded, "calico-node-node1") as store:
        # What another node has made needs no right to make it.
        await ensure_initialized(store, "k8s,bgp")


@pytest.mark.parametrize("name", ["a;reboot", "$(id)", "../x", "a b", "-n", ""])
async def test_a_node_name_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    command = [str(SCRIPT), "--node", name]
    done = await asyncio.to_thread(
        lambda: subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    )
    assert done.returncode == 2
    assert done.stdout == ""
