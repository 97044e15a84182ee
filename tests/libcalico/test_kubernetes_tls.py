"""TLS with an API server: what is not trusted is named, what rotates is taken up."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from libcalico.kubernetes.access import Access
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import NoAccess, Unreachable
from tests.support.certificates import Authority, Pair


@contextlib.asynccontextmanager
async def serving(pair: Pair, authority: Authority, seen: list[str]) -> AsyncIterator[str]:
    """A TLS server that asks for a client's certificate; notes its name. Gives its address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    context.load_verify_locations(authority.cert)
    context.verify_mode = ssl.CERT_OPTIONAL

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        shown = writer.get_extra_info("peercert") or {}
        name = dict(part[0] for part in shown.get("subject", ())).get("commonName", "nobody")
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                seen.append(name)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@pytest.mark.asyncio
async def test_a_certificate_that_rotates_makes_another_connection(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    seen: list[str] = []
    async with serving(authority.issue("server"), authority, seen) as address:
        access = Access(address, ca=authority.cert.read_bytes())
        client = Client(lambda: access)
        for name in ("", "one", "one", "two"):
            if name:
                pair = authority.issue(f"{name}{len(seen)}", names=())
                access = replace(access, cert=pair.cert.read_bytes(), key=pair.key.read_bytes())
            await client.request("GET", "/")
        await client.request("GET", "/")
        await client.close()
    assert seen == ["nobody", "one1", "one2", "two3", "two3"]


@pytest.mark.asyncio
async def test_a_server_that_is_not_trusted_is_not_asked(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path, "ca"), Authority(tmp_path, "other")
    seen: list[str] = []

    async def fails(names: Sequence[str], word: str, ca: Path, end: int = 9) -> None:
        start, last = timedelta(days=-30), timedelta(days=end)
        pair = authority.issue(
            f"s{end}{names[0][-3:]}{ca.stem}", names=names, start=start, end=last
        )
        async with serving(pair, authority, seen) as address:
            client = Client(lambda: Access(address, ca=ca.read_bytes(), token="secret"))
            with pytest.raises(Unreachable, match=rf"{address}.*not trusted.*{word}"):
                await client.request("GET", "/")

    await fails(["IP:127.0.0.1"], "self-signed", other.cert)
    await fails(["DNS:elsewhere"], "(mismatch|not valid for)", authority.cert)
    await fails(["IP:127.0.0.1"], "expired", authority.cert, end=-1)
    assert not seen


@pytest.mark.asyncio
async def test_a_name_of_its_own_and_insecure_by_name(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path, "ca"), Authority(tmp_path, "other")
    seen: list[str] = []
    async with serving(authority.issue("s", names=["DNS:api"]), authority, seen) as address:
        for access in (
            Access(address, ca=authority.cert.read_bytes(), server_name="api"),
            Access(address, ca=other.cert.read_bytes(), insecure=True),
        ):
            client = Client(partial(replace, access))
            await client.request("GET", "/")
            await client.close()
    assert len(seen) == 2


@pytest.mark.asyncio
async def test_pem_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    one, two = authority.issue("one"), authority.issue("two")
    for access, word in (
        (Access("https://127.0.0.1:1", ca=b"no"), "CA is no PEM"),
        (Access("https://127.0.0.1:1", cert=b"no", key=b"no"), "client certificate and its key"),
        (
            Access("https://127.0.0.1:1", cert=one.cert.read_bytes(), key=two.key.read_bytes()),
            "mismatch",
        ),
    ):
        with pytest.raises(NoAccess, match=word):
            await Client(partial(replace, access)).request("GET", "/")
