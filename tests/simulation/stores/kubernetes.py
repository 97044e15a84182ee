"""A store that tells as the Kubernetes API does, under the real `KubernetesDatastore`.

`ApiClient` stands for `libcalico.kubernetes.client.Client` at its two calls that make traffic: a
request, and the lines of a watch. Objects are trees; each has its own resourceVersion; a watch with
a field selector tells of objects that come into it or leave it. Pods and Nodes are told in protobuf
to who asks for that, and as their metadata alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from libcalico.datastore.kubernetes.fields import NODE, POD
from libcalico.kubernetes import protobuf
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.connections import JSON
from libcalico.kubernetes.errors import Unreachable, of_status
from libcalico.kubernetes.protobuf import Fields
from tests.simulation.stores.weather import Waiting, Weather, wake
from tests.support.packing import packed_event, packed_list

Tree = dict[str, Any]
Happening = tuple[int, str, Tree | None, Tree | None]
"""Revision, path, the object before and after."""
_HEX = "0123456789abcdef"
PACKED = {"pods": POD, "nodes": NODE}


@dataclass
class Api:
    """The objects of an API server, by the path of their collection and their own.

    `uid` makes one; `log` hears of each change.
    """

    log: Callable[[str], None] = lambda text: None
    uid: Callable[[], str] = lambda: "uid"
    objects: dict[str, Tree] = field(default_factory=dict)
    version: int = 1
    history: dict[str, list[Happening]] = field(default_factory=dict)
    compacted: int = 0
    waiting: dict[str, Waiting] = field(default_factory=dict)

    def after(self, collection: str, revision: int) -> list[Happening]:
        """What happened to a collection's objects after a revision."""
        found = self.history.get(_plural(collection), [])
        late = found[bisect_right(found, revision, key=lambda one: one[0]) :]
        return [one for one in late if _collection(one[1], collection)]

    def put(self, path: str, tree: Tree) -> Tree:
        """An object as it is from now on, whatever was there."""
        before = self.objects.get(path)
        tree = msgspec.json.decode(msgspec.json.encode(tree))
        meta = tree.setdefault("metadata", {})
        if before is None:
            meta.setdefault("uid", self.uid())
            meta.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        else:
            meta.update({k: before["metadata"][k] for k in ("uid", "creationTimestamp")})
        self.version += 1
        meta["resourceVersion"] = str(self.version)
        self.objects[path] = tree
        self._happened(path, before, tree)
        return tree

    def delete(self, path: str) -> None:
        """An object goes."""
        before = self.objects.pop(path, None)
        if before is not None:
            self.version += 1
            self._happened(path, before, None)

    def patch(self, path: str, change: Tree) -> Tree:
        """A merge patch (RFC 7386)."""
        return self.put(path, _merged(self.objects[path], change))

    def compact(self) -> None:
        """Forget what happened before now."""
        self.compacted = self.version
        self.history.clear()
        for waiting in self.waiting.values():
            wake(waiting)

    def _happened(self, path: str, before: Tree | None, after: Tree | None) -> None:
        plural = path.rsplit("/", 2)[-2]
        self.history.setdefault(plural, []).append((self.version, path, before, after))
        self.log(f"api {self.version} {path} {msgspec.json.encode(after).decode()}")
        wake(self.waiting.get(plural, {}))

    def of(self, collection: str, query: Mapping[str, str]) -> list[tuple[str, Tree]]:
        """The objects of a collection, perhaps of one namespace, that a selector takes."""
        found = []
        for path, tree in sorted(self.objects.items()):
            if _collection(path, collection) and _selected(tree, query):
                found.append((path, tree))
        return found


def _plural(collection: str) -> str:
    return collection.rsplit("/", 1)[-1]


def _collection(path: str, asked: str) -> bool:
    if path.rsplit("/", 1)[0] == asked:
        return True
    # A collection over all namespaces.
    head, _, plural = asked.rpartition("/")
    words = path.removeprefix(head).split("/")
    return path.startswith(f"{head}/namespaces/") and len(words) == 5 and words[3] == plural


def _selected(tree: Tree, query: Mapping[str, str]) -> bool:
    for wish in filter(None, query.get("fieldSelector", "").split(",")):
        where, equal, value = wish.partition("!=" if "!=" in wish else "=")
        found: Any = tree
        for part in where.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        if (str(found or "") == value) != (equal == "="):
            return False
    return True


def _merged(tree: Any, change: Any) -> Any:
    if not isinstance(change, dict):
        return change
    result = dict(tree) if isinstance(tree, dict) else {}
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), value)
    return result


class ApiClient(Client):
    """`Client` without a wire."""

    def __init__(self, api: Api, weather: Weather) -> None:
        super().__init__(lambda: None)  # type: ignore[arg-type, return-value]
        self._api, self.weather = api, weather

    async def close(self) -> None:
        """Nothing to give back."""

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content: str = JSON,
        accept: str = JSON,
    ) -> bytes:
        """One request."""
        tried = f"{method} {path}"
        await self._travel(tried)
        code, answer = _serve(self._api, method, path, query or {}, body)
        await self._travel(tried)
        if code >= 300:
            raise of_status(tried, code, msgspec.json.encode(answer))
        if (fields := _packed_as(path, accept)) and "items" in answer:
            items = [_shown(item, accept) for item in answer["items"]]
            return packed_list({**answer, "items": items}, fields)
        if method != "GET" and self.weather.loses_the_answer():
            raise Unreachable(f"{tried}: no answer (simulated)")
        return msgspec.json.encode(answer)

    async def _travel(self, tried: str) -> None:
        await self.weather.travel()
        if self.weather.away:
            await asyncio.sleep(5.0)
            raise Unreachable(f"{tried}: no answer (simulated)")

    async def lines(
        self,
        path: str,
        revision: str,
        query: Mapping[str, str],
        *,
        seconds: int = 300,
        accept: str = JSON,
    ) -> AsyncGenerator[bytes, None]:
        """The events of a watch."""
        api, at = self._api, int(revision)
        fields = _packed_as(path, accept)
        await self._travel(f"watch {path}")
        yield b""
        ends = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < ends:
            if at < api.compacted and api.version > at:
                status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
                yield _told("ERROR", status, fields)
                return
            due = api.after(path, at)
            if not due:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(ends):
                        await self.weather.news(api.waiting.setdefault(_plural(path), {}))
                if self.weather.away:
                    await self._deaf(path)
                continue
            await self.weather.travel()
            if self.weather.away:
                await self._deaf(path)
            for number, _, before, after in due:
                at = number
                told = _change(number, before, after, query)
                if told is not None:
                    yield _told(told[0], _shown(told[1], accept), fields)

    async def _deaf(self, path: str) -> None:
        """The way is cut: after a while that is noticed, unless it is open again by then."""
        await asyncio.sleep(self.weather.chance.random() * 10)
        if self.weather.away:
            raise Unreachable(f"watch {path}: nothing heard (simulated)")


def _packed_as(path: str, accept: str) -> Fields | None:
    """The fields of what is told in protobuf."""
    return PACKED.get(_plural(path)) if accept.startswith(protobuf.PROTOBUF) else None


def _shown(tree: Tree, accept: str) -> Tree:
    """What is told of an object."""
    brief = accept in (protobuf.METADATA, protobuf.METADATA_LIST)
    return {"metadata": tree["metadata"]} if brief else tree


def _told(what: str, tree: Tree, fields: Fields | None) -> bytes:
    if fields is not None:
        return packed_event(what, tree, fields)
    return msgspec.json.encode({"type": what, "object": tree})


def _change(
    number: int, before: Tree | None, after: Tree | None, query: Mapping[str, str]
) -> tuple[str, Tree] | None:
    was = before is not None and _selected(before, query)
    now = after is not None and _selected(after, query)
    if now and after is not None:
        return "MODIFIED" if was else "ADDED", after
    if not was:
        return None
    # As the API does: the object as it was, at the revision at which it left.
    return "DELETED", _merged(before, {"metadata": {"resourceVersion": str(number)}})


def _serve(
    api: Api, method: str, path: str, query: Mapping[str, str], body: bytes
) -> tuple[int, Any]:
    path = path.removesuffix("/status")
    found = api.objects.get(path)
    match method:
        case "GET" if found is not None:
            return 200, found
        case "GET" if _is_object(path):
            return _status(404, "NotFound")
        case "GET":
            items = [tree for _, tree in api.of(path, query)]
            return 200, {"metadata": {"resourceVersion": str(api.version)}, "items": items}
        case "POST":
            tree = msgspec.json.decode(body)
            path = f"{path}/{tree['metadata']['name']}"
            if path in api.objects:
                return _status(409, "AlreadyExists")
            tree["metadata"].pop("resourceVersion", None)
            tree["metadata"].pop("uid", None)
            return 201, api.put(path, tree)
    if found is None:
        return _status(404, "NotFound")
    wanted = msgspec.json.decode(body) if body else {}
    meta = wanted.get("metadata") or {}
    if method == "DELETE":
        meta = wanted.get("preconditions") or {}
    for name in ("resourceVersion", "uid"):
        if meta.get(name) and meta[name] != found["metadata"][name]:
            return _status(409, "Conflict")
    if method == "DELETE":
        api.delete(path)
        return 200, {"kind": "Status", "status": "Success"}
    if method == "PATCH":
        return 200, api.patch(path, {**wanted, "metadata": _kept(meta)})
    return 200, api.put(path, {**wanted, "metadata": {**_kept(meta)}})


def _kept(meta: Tree) -> Tree:
    return {name: value for name, value in meta.items() if name not in ("resourceVersion", "uid")}


def _is_object(path: str) -> bool:
    """Whether a path names one object: its last word is no plural of a collection."""
    words = path.strip("/").split("/")
    rest = words[2:] if words[0] == "api" else words[3:]
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    return len(rest) > 1


def _status(code: int, reason: str) -> tuple[int, Any]:
    return code, {"kind": "Status", "code": code, "reason": reason, "message": reason}
