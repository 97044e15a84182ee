"""A certificate that cannot be read hides neither that TLS works nor why it does not."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import connect, tls, tls_probe
from libcalico.errors import CertificateProblem, DatastoreUnavailable
from libcalico.model import HandleKey
from tests.support import malformed_certificates as malformed
from tests.support.certificates import Pair
from tests.support.etcd import CALL
from tests.support.one_round import one_round as one_round
from tests.support.patience import HANG

pytestmark = pytest.mark.asyncio

CASES = [*malformed.EXTENSIONS, *malformed.UNREADABLE]
T61 = "a name in T61"


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take its time to say what is wrong."""
    monkeypatch.setattr(tls_probe, "CONNECT_SECONDS", HANG)
    monkeypatch.setattr(tls_probe, "PLAIN_SECONDS", HANG)


@asynccontextmanager
async def serving(pair: Pair) -> AsyncIterator[str]:
    """The address of a server with this certificate, which answers each connection a byte."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    context.set_alpn_protocols(["h2"])

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\0")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def config(endpoint: str, ca: Path) -> DatastoreConfig:
    return DatastoreConfig(
        datastore_type="etcdv3", etcd_endpoints=endpoint, ca_file=str(ca), timeout=CALL
    )


async def test_a_server_that_is_trusted_is_in_order_though_unreadable(tmp_path: Path) -> None:
    pair = malformed.make(tmp_path, T61)
    async with serving(pair) as address:
        (finding,) = await tls.probe(config(f"https://{address}", pair.cert), HANG)
    assert (finding.level, "cannot be read" in finding.text) == ("ok", True), finding


async def test_a_server_that_speaks_tls_is_noticed_though_unreadable(tmp_path: Path) -> None:
    pair = malformed.make(tmp_path, T61)
    async with serving(pair) as address:
        (finding,) = await tls.probe(config(f"http://{address}", pair.cert), HANG)
    assert "it speaks TLS: write https://" in finding.text


@pytest.mark.parametrize("case", CASES)
async def test_a_server_of_another_authority_is_refused_though_it_is_malformed(
    tmp_path: Path, case: str
) -> None:
    pair, other = malformed.make(tmp_path, case), malformed.make(tmp_path)
    async with serving(pair) as address:
        (finding,) = await tls.probe(config(f"https://{address}", other.cert), HANG)
    assert "not signed by" in finding.text
    assert "which holds CN=marker" in finding.text
    unreadable = case in malformed.UNREADABLE
    said = "a certificate that cannot be read" if unreadable else "subject CN=marker"
    assert f"the server's certificate: {said}" in finding.text


@pytest.mark.parametrize("case", CASES)
async def test_a_read_by_a_malformed_authority_says_what_is_wrong(
    tmp_path: Path, case: str, one_round: None
) -> None:
    pair, other = malformed.make(tmp_path, case), malformed.make(tmp_path)
    holds = "no certificate that can be read" if case in malformed.UNREADABLE else "CN=marker"
    async with serving(other) as address:
        store = await connect(config(f"https://{address}", pair.cert))
        try:
            with pytest.raises(CertificateProblem, match=f"which holds {holds}"):
                await store.get(HandleKey("x"))
        finally:
            await store.close()


async def test_a_name_that_dns_cannot_have_is_no_answer(tmp_path: Path, one_round: None) -> None:
    pair = malformed.make(tmp_path)
    chosen = config(f"https://{64 * 'a'}.example:2379", pair.cert)
    (finding,) = await tls.probe(chosen, HANG)
    assert (finding.level, finding.area) == ("error", "network")
    store = await connect(chosen)
    try:
        with pytest.raises(DatastoreUnavailable, match="no etcd endpoint answered"):
            await store.get(HandleKey("x"))
    finally:
        await store.close()
