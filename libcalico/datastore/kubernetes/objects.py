"""Single objects of the API: requests for them, and the last state that was read of each.

Tested in tests/apiserver/test_kdd_store.py.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

import msgspec

from libcalico.datastore.kubernetes.mapping import (
    Collection,
    Place,
    encoded,
    metadata,
    version,
)
from libcalico.datastore.kubernetes.metadata import Tree
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import UNREADABLE, Busy, ObjectNotFound, Unreachable
from libcalico.process import unlooped

K = TypeVar("K")
V = TypeVar("V")
TRIES = 10
REMEMBERED = 2000
TOO_MANY = 429


class Objects:
    """The objects of one API."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._trees: OrderedDict[str, Tree] = OrderedDict()

    async def read(self, collection: Collection, place: Place) -> Tree | None:
        """One object as the API has it."""
        path = collection.path(place.namespace, place.name)
        try:
            return self.decode(path, await self.call("GET", path))
        except ObjectNotFound:
            self._trees.pop(path, None)
            return None

    def known(self, collection: Collection, place: Place, revision: int) -> Tree | None:
        """An object as it was at a revision, if that is the last state that was read."""
        tree = self._trees.get(collection.path(place.namespace, place.name))
        return tree if tree is not None and version(tree) == revision else None

    async def send(self, method: str, to: str, path: str, body: Tree) -> Tree:
        """Write an object by a request to `to`; as it is stored at `path`."""
        return self.decode(path, await self.call(method, to, encoded(body)))

    async def delete(self, path: str, tree: Tree) -> None:
        """Delete the object if it is still in this state."""
        meta = metadata(tree)
        only = {"uid": meta.get("uid"), "resourceVersion": meta.get("resourceVersion")}
        self._trees.pop(path, None)
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": only}
        await self.call("DELETE", path, encoded(options))

    async def call(
        self, method: str, path: str, body: bytes = b"", content: str = "application/json"
    ) -> bytes:
        """The body of an answer; a request that the API throttles is made again."""
        for tries in range(TRIES):
            try:
                return await self._client.request(method, path, None, body, content)
            except Busy as error:
                # 429 says that nothing was done; 503 may come from anywhere.
                if error.status != TOO_MANY or tries == TRIES - 1:
                    raise
                await unlooped.pause(min(error.retry_after or 0.1 * 2**tries, 2.0))
        raise AssertionError("unreachable")

    def decode(self, path: str, answer: bytes) -> Tree:
        """The object in an answer, remembered as the last state. Raises Unreachable."""
        try:
            tree = msgspec.json.decode(answer)
        except UNREADABLE as problem:
            raise Unreachable(f"{path}: the answer is none: {problem}") from None
        if not isinstance(tree, dict):
            raise Unreachable(f"{path}: the answer is no object")
        keep(self._trees, path, tree)
        return tree


def keep(table: OrderedDict[K, V], at: K, value: V) -> None:
    """Put a value into a table that holds the last REMEMBERED ones."""
    table[at] = value
    table.move_to_end(at)
    if len(table) > REMEMBERED:
        table.popitem(last=False)
