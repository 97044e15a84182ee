"""Who may deliver and who may ask: by the names in the client's certificate.

TLS has made sure that the authority signed it. A list of names narrows that down; without a list
every client of the authority may, as with Goldmane.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import grpc
import grpc.aio

from flows.place import NODE

Context: TypeAlias = Any
"""A `grpc.aio.ServicerContext`; gRPC has no types of its own."""

_NAMES = ("x509_common_name", "x509_subject_alternative_name")


class Access:
    """The two lists, empty for every client of the authority."""

    def __init__(
        self, askers: frozenset[str] = frozenset(), deliverers: frozenset[str] = frozenset()
    ) -> None:
        self._askers, self._deliverers = askers, deliverers
        self.refused = 0

    async def asks(self, context: Context) -> None:
        """Let an asker pass; ends the call with PERMISSION_DENIED otherwise."""
        await self._pass(context, self._askers, "ask (GOLDMANE_ASKERS)")

    async def delivers(self, context: Context) -> None:
        """Let a node pass; ends the call with PERMISSION_DENIED otherwise."""
        await self._pass(context, self._deliverers, "deliver or attend (GOLDMANE_DELIVERERS)")

    async def _pass(self, context: Context, allowed: frozenset[str], what: str) -> None:
        if not allowed:
            return
        names = names_of(context)
        if not names & allowed:
            self.refused += 1
            shown = ", ".join(sorted(names)) or "no name"
            text = f"a client whose certificate says {shown} may not {what}"
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, text)


def names_of(context: Context) -> frozenset[str]:
    """The names in the certificate of the client; none without TLS."""
    told = context.auth_context()
    return frozenset(one.decode(errors="replace") for kind in _NAMES for one in told.get(kind, ()))


def sender_of(context: Context) -> str:
    """Which sender this is, for what is sent twice: the node that it says it is, else its
    address without the port, which changes with each connection."""
    for name, value in context.invocation_metadata() or ():
        if name == NODE:
            return f"node {value if isinstance(value, str) else value.decode(errors='replace')}"
    return str(context.peer()).rpartition(":")[0]
