"""What a fresh start of the mirrors would have stored, against what is stored."""

from __future__ import annotations

import base64
import json
from typing import Any

from controllers.mirror.mirror import Mirror
from controllers.mirror.mirrored_kinds import NAMESPACE_PROFILES, POLICIES
from tests.controllers.running import running
from tests.support.apiserver import ApiServer
from tests.support.etcd import Etcd
from tests.support.patience import until

MIRRORED = ("networkpolicies/", "profiles/")
ROOT = "/calico/resources/v3/projectcalico.org/"
ONCE = ("uid", "creationTimestamp")
"""Metadata that each creation makes anew."""


def versions(stored: Etcd, prefix: str = "/calico/") -> dict[str, tuple[int, int]]:
    """By key, the revision of its last write, and how often it was written."""
    listed = json.loads(stored.ctl("get", prefix, "--prefix", "-w", "json")).get("kvs", ())
    return {
        base64.b64decode(one["key"]).decode(): (one["mod_revision"], one["version"])
        for one in listed
    }


def mirrored(stored: Etcd) -> dict[str, Any]:
    """What the mirrors keep, by key."""
    found = {}
    for part in MIRRORED:
        listed = json.loads(stored.ctl("get", ROOT + part, "--prefix", "-w", "json"))
        for one in listed.get("kvs", ()):
            tree = json.loads(base64.b64decode(one["value"]))
            for name in ONCE:
                tree["metadata"].pop(name, None)
            found[base64.b64decode(one["key"]).decode()] = tree
    return found


async def all_is_there(cluster: ApiServer, stored: Etcd) -> None:
    """Wait until each namespace has its profile and each policy its own: who writes is through."""
    spaces = cluster.call("GET", "/api/v1/namespaces")["items"]
    wanted = {f"{ROOT}profiles/kns.{one['metadata']['name']}" for one in spaces}
    for one in cluster.call("GET", "/apis/networking.k8s.io/v1/networkpolicies")["items"]:
        space, name = one["metadata"]["namespace"], one["metadata"]["name"]
        wanted.add(f"{ROOT}networkpolicies/{space}/knp.default.{name}")
    await until(lambda: wanted <= set(stored.keys(ROOT)), pause=0.2)


async def assert_as_a_fresh_start_makes_it(cluster: ApiServer, stored: Etcd) -> None:
    """Take all of it away, have it made anew, and compare. Nothing else may write meanwhile."""
    found = mirrored(stored)
    assert found
    for part in MIRRORED:
        stored.delete(ROOT + part)
    families: list[Any] = [POLICIES, NAMESPACE_PROFILES]
    client = cluster.client()
    async with stored.connect() as store:
        fresh: list[Any] = [Mirror(family, client, store) for family in families]
        async with running(*fresh):
            await until(lambda: all(part.in_sync for part in fresh))
    await client.close()
    wanted = mirrored(stored)
    accounts = ROOT + "profiles/ksa."
    assert {key: value for key, value in found.items() if not key.startswith(accounts)} == wanted
