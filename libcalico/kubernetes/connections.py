"""The connections of one client of the API: a few idle ones wait for the next request.

Tested in tests/apiserver/test_client.py and test_credentials.py against a real API server.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from libcalico.clusterinfo import our_version
from libcalico.kubernetes.credentials import Access
from libcalico.kubernetes.errors import Unreachable
from libcalico.kubernetes.tls import Contexts
from libcalico.kubernetes.wire import Connection, Head

JSON = "application/json"


class Connections:
    """Connections to one API. `most_idle` are kept for the next request."""

    def __init__(self, most_idle: int) -> None:
        self._most_idle = most_idle
        self._contexts = Contexts()
        self._idle: list[tuple[object, Connection]] = []
        self._agent = f"muslin/{our_version()}"

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop()[1].close()

    async def get(self, access: Access) -> tuple[Connection, bool]:
        """A connection with these credentials, and whether it was used before."""
        identity = self._identity(access)
        kept, self._idle = self._idle, []
        reusable = None
        for one, connection in kept:
            if one != identity or not connection.usable:
                connection.close()
            elif reusable is None:
                reusable = connection
            else:
                self._idle.append((one, connection))
        if reusable is not None:
            return reusable, True
        return await self.open(access), False

    def keep(self, access: Access, connection: Connection) -> None:
        """Keep a connection for the next request, or close it."""
        if connection.usable and len(self._idle) < self._most_idle:
            self._idle.append((self._identity(access), connection))
        else:
            connection.close()

    def _identity(self, access: Access) -> object:
        # A token goes with every request, a certificate with the connection.
        return access.server, access.proxy, self._contexts.of(access)

    async def open(self, access: Access) -> Connection:
        """A new connection. Raises Unreachable."""
        try:
            host, port = access.address
        except ValueError as problem:
            raise Unreachable(f"{access.server}: no connection: {problem}") from None
        try:
            tls = self._contexts.of(access)
            return await Connection.open(host, port, tls, access.server_name, access.proxy)
        except Unreachable as problem:
            raise Unreachable(f"{access.server}: {problem}") from None

    async def send(
        self,
        connection: Connection,
        access: Access,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content: str = JSON,
        accept: str = JSON,
    ) -> Head:
        """Send a request with these credentials; the head of its answer. Raises Unreachable."""
        headers = {"accept": accept, "user-agent": self._agent}
        if access.token:
            headers["authorization"] = f"{access.scheme} {access.token}"
        if body:
            headers["content-type"] = content
        if not query or "watch" not in query:
            headers["accept-encoding"] = "gzip"
        target = access.base + path + (f"?{urlencode(query)}" if query else "")
        return await connection.send(method, target, headers, body, more=access.acting_as)
