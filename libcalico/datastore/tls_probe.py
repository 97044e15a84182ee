"""One handshake with an etcd endpoint, and what its failure means (PAIN-32).

Tested in tests/libcalico/test_tls.py with certificates that are wrong in every way, and in
tests/libcalico/test_tls_probe.py.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NoReturn

from libcalico import parsing
from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import x509
from libcalico.datastore.pem import Material, identify, labels, settle
from libcalico.datastore.x509 import Certificate
from libcalico.identity import reason_of

LISTEN_SECONDS = 0.3

PLAIN_SECONDS = 5.0
"""How long a server without TLS may take to turn a handshake away."""

CONNECT_SECONDS = 1.0
"""How long the kernel there may take to take a connection: no busy process is waited for."""

# A client's first bytes of HTTP/2 (RFC 9113 section 3.4): the preface and empty settings.
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@dataclass(frozen=True, slots=True)
class Finding:
    """One observation: `subject` is a file or an endpoint, `text` says what and what to do."""

    level: Literal["ok", "warning", "error"]
    subject: str
    text: str
    area: Literal["tls", "network"] = "tls"


class Probe:
    """The examination of one endpoint."""

    def __init__(self, endpoint: str, config: DatastoreConfig) -> None:
        address = parsing.url(config.name("etcd_endpoints"), endpoint, parsing.ETCD_PORT)
        self.endpoint, self.config = endpoint, config
        self.host, self.port, self.secure = address.host, address.port, address.secure

    async def run(self) -> Finding:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, writer = await asyncio.open_connection(self.host, self.port)
            writer.close()
        except (OSError, UnicodeError) as problem:
            # The latter for a name that DNS cannot have, such as a label of 64 characters.
            why = getattr(problem, "strerror", "") or str(problem) or "no answer"
            return Finding("error", self.endpoint, f"no TCP connection: {why}", "network")
        if not self.secure:
            return await self._plain()
        material = settle(self.config)
        try:
            shown = await self._shake(_context(material))
        except ssl.SSLCertVerificationError as problem:
            return self._error(self._untrusted(problem, material, await self._server(material)))
        except ssl.SSLError as problem:
            return self._error(self._refused(problem, material))
        except (OSError, EOFError) as problem:
            why = str(problem) or "end of stream"
            return self._error(f"it broke off the TLS handshake ({why}): does it speak TLS?")
        return Finding("ok", self.endpoint, _described(shown) or "no certificate shown")

    async def _plain(self) -> Finding:
        """Check that a server that is addressed without TLS does not require it."""
        try:
            async with asyncio.timeout(PLAIN_SECONDS):
                await self._shake(_unverified(), talk=False)
        except (OSError, EOFError):
            return Finding("ok", self.endpoint, "reachable, without TLS", "network")
        return self._error("it speaks TLS: write https:// and name the CA (etcdCACertFile)")

    async def _shake(self, context: ssl.SSLContext, talk: bool = True) -> bytes:
        """Make a handshake, read the first answer, and return the certificate shown, in DER.

        Empty where none is shown. Raises ssl.SSLError, OSError, EOFError.
        """
        reader, writer = await asyncio.open_connection(
            self.host, self.port, ssl=context, server_hostname=self.host
        )
        try:
            tls = writer.get_extra_info("ssl_object")
            shown: bytes | None = tls.getpeercert(binary_form=True)
            if talk and not await _first_word(reader, writer):
                # It closed, and our bytes may have cost the reason: again, without them.
                await self._listen(context)
            return shown or b""
        finally:
            writer.close()

    async def _listen(self, context: ssl.SSLContext) -> NoReturn:
        """Make a handshake and send nothing; always raises ssl.SSLError, OSError, EOFError.

        For a server that has closed the connection once: it closes again.
        """
        reader, writer = await asyncio.open_connection(
            self.host, self.port, ssl=context, server_hostname=self.host
        )
        try:
            await reader.read(1)
            raise EOFError("end of stream")
        finally:
            writer.close()

    async def _server(self, material: Material) -> bytes:
        """The server's certificate in DER, fetched without verifying it; empty if it is not."""
        context = _unverified()
        identify(context, material)
        try:
            return await self._shake(context, talk=False)
        except (OSError, EOFError):
            return b""

    def _untrusted(
        self, problem: ssl.SSLCertVerificationError, material: Material, server: bytes
    ) -> str:
        label = labels(self.config)["ca"] if material.ca else "the system's authorities"
        shown = f"; the server's certificate: {_described(server)}" if server else ""
        now = datetime.now(UTC)
        dates = "".join(one.dates(now) for one in _readable([server]))
        if problem.verify_code in (62, 64):
            return (
                f"the server's certificate is not for {self.host}: SAN mismatch{shown};"
                " use an endpoint that the SAN names, or have the certificate made anew"
            )
        if problem.verify_code in (9, 10) and dates:
            return f"the server's certificate is not good now: {dates}{shown}"
        authorities = _readable(x509.encoded(material.ca))
        stale = [one for one in authorities if one.dates(now)]
        if problem.verify_code in (9, 10) and stale:
            return f"the CA in {label}: {stale[0].dates(now)} ({stale[0].described()})"
        subjects = "; ".join(one.subject for one in authorities[:5])
        if not material.ca:
            label += " (no etcdCACertFile is set)"
        elif subjects:
            label += f", which holds {subjects}"
        else:
            label += ", which holds no certificate that can be read"
        return (
            f"the server's certificate is not signed by {label} ({problem.verify_message}){shown}"
        )

    def _refused(self, problem: ssl.SSLError, material: Material) -> str:
        said = reason_of(problem)
        if "wrong version number" in said or "record layer" in said or "http request" in said:
            return f"it does not speak TLS ({said}): write http://"
        if "alert" not in said:
            return f"the TLS handshake failed: {said}"
        if not material.cert:
            return (
                f"the server demands a client certificate ({said}) and none is configured: set"
                " etcdCertFile and etcdKeyFile (ETCD_CERT_FILE, ETCD_KEY_FILE)"
            )
        label = labels(self.config)["cert"]
        refused = f"the server refused the client certificate {label} ({said})"
        der = x509.encoded(material.cert)[0]
        try:
            own = x509.parse(der)
        except ValueError as unreadable:
            return f"{refused}, which cannot be read: {unreadable}"
        why = own.dates(datetime.now(UTC))
        if not why and own.purposes and not {"clientAuth", "any"} & set(own.purposes):
            why = f"its purposes are {', '.join(own.purposes)}, without clientAuth"
        if not why:
            why = f"perhaps its issuer ({own.issuer}) is not in the server's --trusted-ca-file"
        return f"{refused}: {why}; {own.described()}"

    def _error(self, text: str) -> Finding:
        return Finding("error", self.endpoint, text)


async def _first_word(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Whether the server answers after the handshake; in TLS 1.3 it judges our certificate there.

    First we only listen: bytes sent to a server that has closed would reset the connection, and the
    reason would be lost unread. False means that this may have happened. Raises ssl.SSLError,
    OSError, EOFError.
    """
    try:
        async with asyncio.timeout(LISTEN_SECONDS):
            heard = await reader.read(1)
    except TimeoutError:
        try:
            writer.write(_HELLO)
            await writer.drain()
            return bool(await reader.read(1))
        except ssl.SSLError:
            raise
        except OSError:
            return False
    if not heard:
        raise EOFError("end of stream")
    return True


def _described(der: bytes) -> str:
    """One certificate in a line, or why it cannot be read; empty for none."""
    try:
        return x509.parse(der).described() if der else ""
    except ValueError as problem:
        return f"a certificate that cannot be read: {problem}"


def _readable(ders: Iterable[bytes]) -> list[Certificate]:
    """Those of the certificates that can be read."""
    read: list[Certificate] = []
    for der in ders:
        with suppress(ValueError):
            read.append(x509.parse(der))
    return read


def _unverified() -> ssl.SSLContext:
    """A context that takes any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _context(material: Material) -> ssl.SSLContext:
    if material.ca:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=material.ca.decode("ascii", errors="ignore"))
    else:
        context = ssl.create_default_context()
    context.set_alpn_protocols(["h2"])
    identify(context, material)
    return context
