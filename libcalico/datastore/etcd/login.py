"""The login at etcd: the token that each call bears, asked for again when it has ended.

Tested in tests/libcalico/test_etcd_auth.py.
"""

from __future__ import annotations

import asyncio

import grpc.aio

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.etcd.failures import UNREADABLE, NotSent, gone, login_not_needed, why
from libcalico.datastore.etcd.link import Link
from libcalico.datastore.etcd.proto import etcd_pb2 as pb
from libcalico.datastore.etcd.unary import LEADER

Metadata = tuple[tuple[str, str], ...]


class Login:
    """The login of the configured user; without a password calls bear no token.

    `token` is None until one is needed, and empty where etcd has no users.
    """

    def __init__(self, config: DatastoreConfig) -> None:
        self._name, self._password = config.username, config.password
        self._lock = asyncio.Lock()
        self.token: str | None = None

    @property
    def needed(self) -> bool:
        """Whether calls need a token. Calico logs in only where name and password are given."""
        return bool(self._name and self._password)

    @property
    def metadata(self) -> Metadata:
        """The metadata of a call with the token as it is."""
        return (LEADER, ("token", self.token)) if self.token else (LEADER,)

    async def ready_metadata(self, link: Link, timeout: float) -> Metadata:
        """The metadata of a call, after a login if there is no token."""
        if self.needed:
            async with self._lock:
                if self.token is None:
                    self.token = await self._authenticate(link, timeout)
        return self.metadata

    async def _authenticate(self, link: Link, timeout: float) -> str:
        """A token; empty where etcd has no users. Raises NotSent, AioRpcError."""
        request = pb.AuthenticateRequest(name=self._name, password=self._password)
        try:
            answer = await link.authenticate(request, timeout=timeout)
        except grpc.aio.AioRpcError as problem:
            if login_not_needed(problem):
                return ""
            if gone(problem):
                raise NotSent(why(problem)) from None
            raise
        if answer is None:
            raise NotSent(UNREADABLE)
        return answer.token
