"""TLS with etcd that cannot work says what to mend, whatever is wrong; TLS that can, works.

Real etcd servers, certificates made wrong with openssl(1). Nothing waits longer than the
deadline and the second in which the cause is looked for.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from libcalico import apiconfig
from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import connect, tls, tls_probe, x509
from libcalico.datastore.etcd import outages
from libcalico.errors import CertificateProblem, DatastoreUnavailable, InvalidValue
from libcalico.model import ResourceKey
from tests.support import malformed_certificates
from tests.support.certificates import Authority, Pair
from tests.support.etcd import CALL, Etcd, free_ports
from tests.support.one_round import end_after_one_round
from tests.support.patience import HANG

NODE = ResourceKey("Node", "node1")
DAY = timedelta(days=1)
AES = ("-aes256", "-passout", "pass:geheim")
SHARE = outages.EXPLAIN_SHARE


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take its time to say what is wrong."""
    monkeypatch.setattr(outages, "EXPLAIN_SHARE", HANG)
    monkeypatch.setattr(tls_probe, "CONNECT_SECONDS", HANG)
    monkeypatch.setattr(tls_probe, "LISTEN_SECONDS", HANG)
    monkeypatch.setattr(tls_probe, "PLAIN_SECONDS", HANG)


class World:
    """One authority, a good server and client certificate, and ways to make bad ones."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = Authority(folder, "right-ca")
        self.server = self.ca.issue("server")
        self.client = self.ca.issue("client", names=(), usage="clientAuth")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("tls"))


def flags(server: Pair, ca: Path, demand: bool = True) -> list[str]:
    found = [f"--cert-file={server.cert}", f"--key-file={server.key}"]
    return [*found, *([f"--trusted-ca-file={ca}", "--client-cert-auth=true"] if demand else [])]


@pytest.fixture(scope="module")
def secured(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """An etcd that demands client certificates."""
    server = Etcd(tmp_path_factory.mktemp("secured"), flags(world.server, world.ca.cert), "https")
    server.ctl_flags = ctl_flags(world)
    server.start()
    yield server
    server.stop()


def ctl_flags(world: World, *more: str) -> list[str]:
    client = world.client
    return [f"--cacert={world.ca.cert}", f"--cert={client.cert}", f"--key={client.key}", *more]


def config(endpoint: str, world: World, **changes: str) -> DatastoreConfig:
    good = DatastoreConfig(
        datastore_type="etcdv3",
        etcd_endpoints=endpoint,
        ca_file=str(world.ca.cert),
        cert_file=str(world.client.cert),
        key_file=str(world.client.key),
        timeout=CALL,
    )
    return replace(good, **changes)  # type: ignore[arg-type]


async def refusal(chosen: DatastoreConfig) -> str:
    """What the error says, after each endpoint was tried once."""
    store = await connect(chosen)
    try:
        with pytest.MonkeyPatch.context() as monkeypatch:
            end_after_one_round(monkeypatch)
            with pytest.raises(DatastoreUnavailable) as problem:
                await store.get(NODE)
    finally:
        await store.close()
    assert isinstance(problem.value, CertificateProblem), problem.value
    return str(problem.value)


async def works(chosen: DatastoreConfig) -> None:
    store = await connect(chosen)
    try:
        assert await store.get(NODE) is None
    finally:
        await store.close()


@pytest.mark.asyncio
@pytest.mark.promise("M-172")
@pytest.mark.parametrize("source", ["environment", "file", "inline in a file"])
async def test_tls_from_environment_file_and_inline(
    secured: Etcd, world: World, tmp_path: Path, source: str
) -> None:
    files = {"KEY": world.client.key, "CERT": world.client.cert, "CA_CERT": world.ca.cert}
    if source == "environment":
        environ = {f"ETCD_{name}_FILE": str(path) for name, path in files.items()}
        chosen = apiconfig.from_environment({**environ, "ETCD_ENDPOINTS": secured.endpoint})
    else:
        names = {"KEY": "etcdKey", "CERT": "etcdCert", "CA_CERT": "etcdCACert"}
        text = (
            "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nspec:\n"
            f"  etcdEndpoints: {secured.endpoint}\n"
        )
        for name, path in files.items():
            if source == "file":
                text += f"  {names[name]}File: {path}\n"
            else:
                text += f"  {names[name]}: |\n"
                text += "".join(f"    {line}\n" for line in path.read_text().splitlines())
        file = tmp_path / "calicoctl.cfg"
        file.write_text(text)
        file.chmod(0o600)
        chosen = apiconfig.from_file(file)
    assert chosen.notices == ()
    assert "PRIVATE" not in repr(chosen)
    await works(chosen)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"ca": "x"}, "etcdKeyFile"),
        ({"key": "x", "cert": "y"}, "etcdKeyFile"),
        ({"key_file": ""}, "etcdKeyFile"),
        ({"cert_file": ""}, "etcdKeyFile"),
    ],
)
def test_files_and_inline_texts_are_not_mixed(
    world: World, changes: dict[str, str], field: str
) -> None:
    with pytest.raises(InvalidValue) as problem:
        config("https://127.0.0.1:1", world, **changes).check()
    assert problem.value.field == field


def bad_files(world: World, folder: Path) -> dict[str, tuple[dict[str, str], list[str]]]:
    """Name -> (settings, what the error must say), for files that are wrong by themselves."""
    other = world.ca.issue("other", names=(), usage="clientAuth")
    encrypted, der, cut = folder / "encrypted.key", folder / "client.der", folder / "cut.pem"
    subprocess.run(
        ["openssl", "pkey", "-in", world.client.key, "-out", encrypted, *AES],
        check=True,
    )
    subprocess.run(
        ["openssl", "x509", "-in", world.client.cert, "-outform", "DER", "-out", der], check=True
    )
    cut.write_bytes(world.client.cert.read_bytes()[:200])
    damaged = folder / "damaged.pem"
    damaged.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    folder_path, missing = str(folder), str(folder / "missing.pem")
    return {
        "missing": ({"ca_file": missing}, [missing, "cannot be read", "No such file"]),
        "a folder": ({"key_file": folder_path}, [folder_path, "Is a directory"]),
        "another's key": (
            {"key_file": str(other.key)},
            [str(other.key), str(world.client.cert), "CN=client", "not the key of"],
        ),
        "encrypted key": ({"key_file": str(encrypted)}, [str(encrypted), "passphrase"]),
        "key in place of certificate": (
            {"cert_file": str(world.client.key)},
            ["no certificate", "PRIVATE KEY"],
        ),
        "certificate in place of key": (
            {"key_file": str(world.client.cert)},
            ["no private key", "CERTIFICATE"],
        ),
        "DER": ({"cert_file": str(der)}, ["DER", "openssl x509"]),
        "damaged": ({"ca_file": str(damaged)}, [str(damaged), "is damaged"]),
        "cut": ({"cert_file": str(cut)}, [str(cut), "no certificate"]),
        "no PEM": ({"ca_file": "/etc/hostname"}, ["/etc/hostname", "no PEM"]),
    }


@pytest.mark.asyncio
@pytest.mark.promise("PAIN-32")
async def test_a_file_that_is_wrong_is_named_before_the_first_packet(
    world: World, tmp_path: Path
) -> None:
    for name, (changes, wanted) in bad_files(world, tmp_path).items():
        chosen = config("https://127.0.0.1:1", world, **changes)
        with pytest.raises(CertificateProblem) as problem:
            await connect(chosen)
        for text in wanted:
            assert text in str(problem.value), f"{name}: {problem.value}"
        assert "geheim" not in str(problem.value)
        (found,) = tls.inspect(chosen)
        assert (found.level, found.text) == ("error", str(problem.value))


SERVERS: dict[str, tuple[Callable[[World], Pair], list[str]]] = {
    "expired": (
        lambda w: w.ca.issue("s-expired", start=-9 * DAY, end=-2 * DAY),
        ["expired on", "CN=s-expired", "issuer CN=right-ca", "SAN IP:127.0.0.1"],
    ),
    "not yet valid": (
        lambda w: w.ca.issue("s-early", start=2 * DAY),
        ["not valid before", "CN=s-early", "clock"],
    ),
    "another authority": (
        lambda w: Authority(w.folder, "wrong-ca").issue("s-foreign"),
        ["not signed by", "right-ca.pem", "holds CN=right-ca", "issuer CN=wrong"],
    ),
    "other names": (
        lambda w: w.ca.issue("s-names", names=("DNS:etcd.example.org", "IP:192.0.2.7")),
        ["SAN mismatch", "127.0.0.1", "DNS:etcd.example.org, IP:192.0.2.7", "CN=s-names"],
    ),
}


@pytest.mark.asyncio
@pytest.mark.promise("PAIN-32")
@pytest.mark.parametrize("case", list(SERVERS))
async def test_a_servers_certificate_that_is_wrong_is_described(
    world: World, make_etcd: Callable[..., Etcd], case: str
) -> None:
    make, wanted = SERVERS[case]
    server = make_etcd("bad", flags(make(world), world.ca.cert, demand=False), "https")
    server.ctl_flags = ["--insecure-skip-tls-verify", "--insecure-transport=false"]
    server.start()
    chosen = config(server.endpoint, world)
    said = await refusal(chosen)
    for text in (server.endpoint, *wanted):
        assert text in said, said
    (found,) = await tls.probe(chosen, HANG)
    assert found.level == "error"
    assert wanted[0] in found.text


CLIENTS: dict[str, tuple[Callable[[World], dict[str, str]], list[str]]] = {
    "none": (
        lambda w: {"cert_file": "", "key_file": ""},
        ["demands a client certificate", "none is configured", "etcdCertFile"],
    ),
    "expired": (
        lambda w: files_of(w.ca.issue("c-expired", start=-9 * DAY, end=-2 * DAY)),
        ["refused the client certificate", "c-expired.pem", "expired on", "CN=c-expired"],
    ),
    "another authority": (
        lambda w: files_of(Authority(w.folder, "foreign-ca").issue("c-foreign")),
        ["refused the client certificate", "c-foreign.pem", "CN=foreign-ca", "--trusted-ca-file"],
    ),
    "for servers only": (
        lambda w: files_of(w.ca.issue("c-server", usage="serverAuth")),
        ["refused the client certificate", "serverAuth, without clientAuth"],
    ),
    "unreadable": (
        lambda w: files_of(malformed_certificates.make(w.folder, "a name in T61")),
        ["refused the client certificate", "which cannot be read"],
    ),
}


def files_of(pair: Pair) -> dict[str, str]:
    return {"cert_file": str(pair.cert), "key_file": str(pair.key)}


@pytest.mark.asyncio
@pytest.mark.promise("PAIN-32")
@pytest.mark.parametrize("case", list(CLIENTS))
async def test_a_clients_certificate_that_the_server_refuses_is_described(
    secured: Etcd, world: World, case: str
) -> None:
    make, wanted = CLIENTS[case]
    said = await refusal(config(secured.endpoint, world, **make(world)))
    for text in (secured.endpoint, *wanted):
        assert text in said, said


@asynccontextmanager
async def slow(port: int) -> AsyncIterator[int]:
    """The port of a relay to another one, which hands on no answer in the first second."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        there = asyncio.create_task(carry(reader, far_writer))
        await asyncio.sleep(1.5)
        await asyncio.gather(carry(far_reader, writer), there)

    listener = await asyncio.start_server(taken, "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()


@pytest.mark.asyncio
@pytest.mark.promise("PAIN-32")
async def test_the_reason_has_half_the_time_of_the_call(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []

    async def explain(_endpoint: str, _config: DatastoreConfig, seconds: float) -> str:
        given.append(seconds)
        return "the reason"

    monkeypatch.setattr(outages, "EXPLAIN_SHARE", SHARE)
    monkeypatch.setattr(tls, "explain", explain)
    said = await refusal(config(f"https://127.0.0.1:{free_ports(1)[0]}", world))
    assert "the reason" in said
    assert given == [CALL / 2]


@pytest.mark.asyncio
@pytest.mark.promise("PAIN-32")
async def test_a_refusal_that_comes_late_is_heard(
    secured: Etcd, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """We have said something before the server did, which then closed: it is asked again."""
    monkeypatch.setattr(tls_probe, "LISTEN_SECONDS", 0.0)
    stale = files_of(world.ca.issue("c-late", start=-9 * DAY, end=-2 * DAY))
    port = int(secured.endpoint.rpartition(":")[2])
    async with slow(port) as relay:
        for endpoint in (secured.endpoint, f"https://127.0.0.1:{relay}"):
            for _ in range(3):
                (found,) = await tls.probe(config(endpoint, world, **stale), HANG)
                assert "refused the client certificate" in found.text, found
    (found,) = await tls.probe(config(secured.endpoint, world), HANG)
    assert found.level == "ok", found.text


@pytest.mark.asyncio
@pytest.mark.promise("PAIN-32")
async def test_the_wrong_scheme_is_said(secured: Etcd, etcd: Etcd, world: World) -> None:
    plain = await refusal(config(secured.endpoint.replace("https", "http"), world))
    assert "it speaks TLS: write https://" in plain
    wrapped = await refusal(config(etcd.endpoint.replace("http", "https"), world))
    assert "http" in wrapped
    assert "TLS" in wrapped


@pytest.mark.asyncio
@pytest.mark.promise("PAIN-32")
async def test_a_server_that_never_shakes_hands_is_no_silent_hang(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(HANG)
        writer.close()

    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    chosen = config(f"https://127.0.0.1:{port}", world, timeout=1.0)  # type: ignore[arg-type]
    monkeypatch.setattr(outages, "EXPLAIN_SHARE", 0.5)
    store = await connect(chosen)
    try:
        with pytest.raises(DatastoreUnavailable, match="no connection within the deadline"):
            await store.get(NODE)
    finally:
        await store.close()
        listener.close()


@pytest.mark.asyncio
async def test_certificates_renewed_on_disk_are_taken_up(
    secured: Etcd, world: World, tmp_path: Path
) -> None:
    cert, key = tmp_path / "c.pem", tmp_path / "c.key"

    def install(pair: Pair) -> None:
        shutil.copy(pair.cert, cert)
        shutil.copy(pair.key, key)

    install(world.ca.issue("c-old", start=-9 * DAY, end=-2 * DAY))
    store = await connect(config(secured.endpoint, world, cert_file=str(cert), key_file=str(key)))
    try:
        with pytest.raises(CertificateProblem):
            await store.get(NODE)
        install(world.ca.issue("c-new"))
        assert await store.get(NODE) is None
    finally:
        await store.close()


def test_inspection_tells_dates_before_they_matter(world: World) -> None:
    chosen = config("https://127.0.0.1:1", world)
    assert {one.level for one in tls.inspect(chosen)} == {"ok"}
    soon = tls.inspect(chosen, datetime.now(UTC) + timedelta(days=20))
    assert "warning" in {one.level for one in soon}
    late = tls.inspect(chosen, datetime.now(UTC) + timedelta(days=60))
    assert {one.level for one in late} == {"error"}
    assert "expired" in late[0].text
    assert tls.inspect(replace(chosen, etcd_endpoints="http://127.0.0.1:1")) == []


def test_inspection_says_which_certificate_cannot_be_read(tmp_path: Path) -> None:
    for case, wanted in (("an x400Address", "ok"), ("a name in T61", "error")):
        pair = malformed_certificates.make(tmp_path, case)
        chosen = DatastoreConfig(
            etcd_endpoints="https://127.0.0.1:1",
            cert_file=str(pair.cert),
            key_file=str(pair.key),
        )
        (only,) = tls.inspect(chosen)
        assert (only.level, only.subject) == (wanted, str(pair.cert))
        assert ("cannot be read" in only.text) == (wanted == "error")


def test_a_certificate_reads_as_openssl_reads_it(world: World) -> None:
    (read,) = x509.certificates(world.server.cert.read_bytes())
    said = subprocess.run(
        ["openssl", "x509", "-in", world.server.cert, "-noout", "-enddate"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f"{read.not_after:%b %e %H:%M:%S %Y} GMT" in said
    assert read.names == ("IP:127.0.0.1",)
    assert read.purposes == ("serverAuth", "clientAuth")
    assert not read.authority
    assert x509.certificates(world.ca.cert.read_bytes())[0].authority


def test_a_program_that_connects_by_tls_does_not_import_cryptography(world: World) -> None:
    """It reads certificates for people: an agent that starts must not pay 11 MB for it."""
    chosen = config("https://127.0.0.1:1", world)
    files = {"KEY": chosen.key_file, "CERT": chosen.cert_file, "CA_CERT": chosen.ca_file}
    environment = {f"ETCD_{name}_FILE": path for name, path in files.items()}
    code = (
        "import asyncio, sys\n"
        "from libcalico import apiconfig, datastore\n"
        f"chosen = apiconfig.from_environment({environment!r} | {{'ETCD_ENDPOINTS': 'https://[::1]:1'}})\n"
        "asyncio.run(datastore.connect(chosen))\n"
        "print('grpc' in sys.modules, 'cryptography' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_bytes_that_are_no_certificate_raise_one_error(world: World) -> None:
    ((_, der),) = x509.pem_parts(world.server.cert.read_bytes())
    for cut in range(0, len(der), 3):
        with pytest.raises(ValueError):
            x509.parse(der[:cut])
    for at in range(0, len(der), 5):
        try:
            x509.parse(der[:at] + bytes([der[at] ^ 0x55]) + der[at + 1 :])
        except ValueError:
            pass
