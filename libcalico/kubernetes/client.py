"""One client of the Kubernetes API: requests, pages of lists, watches.

Every request reads the credentials anew (they rotate), has a deadline and raises an error of
`libcalico.kubernetes.errors`. Idle connections are used again; a watch has its own.
Tested in tests/apiserver/test_client.py and test_credentials.py against a real API server.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

import msgspec

from libcalico.kubernetes.connections import JSON, Connections
from libcalico.kubernetes.credentials import Access, Renewing, Source, refuse
from libcalico.kubernetes.deadline import Deadline
from libcalico.kubernetes.errors import Unauthorized, Unreachable, of_status
from libcalico.kubernetes.wire import Connection, Head
from libcalico.process import unlooped

if TYPE_CHECKING:
    # A short command asks by paths alone, and has no use for them.
    from libcalico.kubernetes.decoding import Event, Page, Query
    from libcalico.kubernetes.objects import Object, Resource

T = TypeVar("T", bound="Object")
R = TypeVar("R")
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
IDLE = 2
"""Connections that are kept for the next request."""


class Client:
    """A client of the API at `source`. `timeout` is the deadline of a request, in seconds."""

    def __init__(
        self, source: Source, *, timeout: float = 30.0, silence: float = 150.0, idle: int = IDLE
    ) -> None:
        self._source, self._timeout, self._silence = source, timeout, silence
        self._connections = Connections(idle)

    @property
    def source(self) -> Source:
        """The access to the API, for a client with connections of its own."""
        return self._source

    async def close(self) -> None:
        """Close the idle connections."""
        self._connections.close()

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content: str = JSON,
        accept: str = JSON,
    ) -> bytes:
        """The body of the answer. Raises KubernetesError; ApiError for every status above 299."""
        return await self._admitted(
            f"{method} {path}",
            lambda access: self._request(access, method, path, query, body, content, accept),
        )

    async def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        """One object. Raises KubernetesError, ObjectNotFound where there is none."""
        return _object(resource, await self.request("GET", resource.path(namespace, name)))

    async def create(self, resource: Resource[T], body: object, namespace: str = "") -> T:
        """Create an object from a tree; returns it as stored. Raises KubernetesError."""
        raw = msgspec.json.encode(body)
        return _object(resource, await self.request("POST", resource.path(namespace), body=raw))

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        body: object,
        namespace: str = "",
        *,
        part: str = "",
        content: str = MERGE_PATCH,
    ) -> T:
        """Merge a tree into an object, or into its `part` (`status`). Raises KubernetesError."""
        path = resource.path(namespace, name, part)
        raw = msgspec.json.encode(body)
        return _object(resource, await self.request("PATCH", path, body=raw, content=content))

    async def replace(
        self, resource: Resource[T], name: str, body: object, namespace: str = ""
    ) -> T:
        """Write a whole object; one with a resourceVersion only if that is still current."""
        path = resource.path(namespace, name)
        return _object(resource, await self.request("PUT", path, body=msgspec.json.encode(body)))

    async def delete(self, resource: Resource[T], name: str, namespace: str = "") -> None:
        """Delete an object. Raises KubernetesError, ObjectNotFound where there is none."""
        await self.request("DELETE", resource.path(namespace, name))

    async def page(
        self,
        resource: Resource[T],
        query: Query | None = None,
        *,
        limit: int = 500,
        token: str = "",
    ) -> Page[T]:
        """One page of a list; `limit` 0 is everything at once.

        Raises Gone when the list that `token` continues has expired.
        """
        from libcalico.kubernetes.decoding import decode_page

        asked = query.parameters() if query else {}
        if limit:
            asked["limit"] = str(limit)
        if token:
            asked["continue"] = token
        raw = await self.request("GET", resource.path(query.namespace if query else ""), asked)
        return decode_page(resource, raw)

    async def watch(
        self,
        resource: Resource[T],
        revision: str,
        query: Query | None = None,
        *,
        seconds: int = 300,
    ) -> AsyncGenerator[Event[T], None]:
        """The events after `revision`; ends when the server ends it, after about `seconds`.

        Raises Gone when the revision has expired, Unreachable when nothing comes for the client's
        `silence` (the server sends a bookmark about once a minute).
        """
        from libcalico.kubernetes.decoding import Event, decode_event

        path = resource.path(query.namespace if query else "")
        # The first event says that the watch is established.
        opened: Event[T] = Event(None, None, revision)
        lines = self.lines(path, revision, query.parameters() if query else {}, seconds=seconds)
        async with aclosing(lines) as open_lines:
            async for line in open_lines:
                yield decode_event(resource, f"watch {path}", line) if line else opened

    async def lines(
        self,
        path: str,
        revision: str,
        query: Mapping[str, str],
        *,
        seconds: int = 300,
        accept: str = JSON,
    ) -> AsyncGenerator[bytes, None]:
        """The events of a watch as lines; the first is empty: the watch is established.

        With `protobuf.ACCEPT` each may be a frame (`protobuf.read_event`). Raises as `watch`.
        """
        asked = {
            **query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
            "resourceVersion": revision,
        }
        tried = f"watch {path}"
        connection, head = await self._admitted(
            tried, lambda access: self._begin(tried, access, path, asked, accept)
        )
        packed = "protobuf" in head.headers.get("content-type", "")
        told = connection.frames if packed else connection.lines
        try:
            yield b""
            async with aclosing(told(head, self._silence)) as lines:
                async for line in lines:
                    yield line
        finally:
            connection.close()

    async def _begin(
        self, tried: str, access: Access, path: str, asked: Mapping[str, str], accept: str
    ) -> tuple[Connection, Head]:
        """Open a watch on a connection of its own."""
        async with self._deadline(tried):
            connection = await self._connections.open(access)
            try:
                head = await self._connections.send(
                    connection, access, "GET", path, asked, accept=accept
                )
                if head.status >= 300:
                    raise self._error(tried, head, await connection.body(head))
            except BaseException:
                connection.close()
                raise
            return connection, head

    async def _admitted(self, tried: str, attempt: Callable[[Access], Awaitable[R]]) -> R:
        """The result of an attempt; after a 401 it is made again if the access has changed.

        The credentials may have rotated between reading and using them, or are renewed.
        """
        access = await self._access(tried)
        try:
            return await attempt(access)
        except Unauthorized:
            refuse(self._source, access)
            fresh = await self._access(tried)
            if fresh == access:
                raise
            return await attempt(fresh)

    async def _access(self, tried: str) -> Access:
        """The present access; a source that may take seconds runs in a thread beside a loop."""
        if not isinstance(self._source, Renewing) or not unlooped.in_loop():
            return self._source()
        import asyncio

        async with self._deadline(tried):
            return await asyncio.to_thread(self._source)

    async def _request(
        self,
        access: Access,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes,
        content: str,
        accept: str,
    ) -> bytes:
        tried = f"{method} {path}"
        async with self._deadline(tried):
            while True:
                connection, used = await self._connections.get(access)
                try:
                    head = await self._connections.send(
                        connection, access, method, path, query, body, content, accept
                    )
                    answer = await connection.body(head)
                except Unreachable:
                    connection.close()
                    if used and method == "GET":
                        # The server closed it between two requests.
                        continue
                    raise
                except BaseException:
                    connection.close()
                    raise
                self._connections.keep(access, connection)
                if head.status >= 300:
                    raise self._error(tried, head, answer)
                return answer

    def _deadline(self, tried: str) -> Deadline:
        return Deadline(tried, self._timeout)

    @staticmethod
    def _error(tried: str, head: Head, body: bytes) -> Exception:
        after = head.headers.get("retry-after", "")
        return of_status(tried, head.status, body, float(after) if after.isdecimal() else 0.0)


def _object(resource: Resource[T], raw: bytes) -> T:
    from libcalico.kubernetes.decoding import decode_object

    return decode_object(resource, raw)
