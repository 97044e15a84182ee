"""Certificates in files and of endpoints: their content, and whether the authority signed them.

Tested in tests/node/test_checksystem.py.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from libcalico import parsing
from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import x509
from libcalico.errors import InvalidValue
from node.checks.datastore_facts import Certificate, Endpoint

TIMEOUT = 3.0


def from_pem(text: str, source: str) -> list[Certificate]:
    """Every certificate of a PEM text; one with `error` where there is none or it is broken."""
    try:
        parsed = x509.certificates(text.encode())
    except ValueError as error:
        return [Certificate(source=source, error=str(error))]
    if not parsed:
        return [Certificate(source=source, error="holds no certificate in PEM form")]
    return [
        Certificate(
            source=source,
            subject=one.subject,
            issuer=one.issuer,
            not_before=one.not_before,
            not_after=one.not_after,
            names=tuple(name.partition(":")[2] for name in one.names),
        )
        for one in parsed
    ]


def of_config(config: DatastoreConfig) -> tuple[list[Certificate], list[str], dict[str, int]]:
    """(certificates, errors, key file modes) of the files or texts that a configuration names."""
    certificates: list[Certificate] = []
    errors: list[str] = []
    modes: dict[str, int] = {}
    for path, inline, label in (
        (config.cert_file, config.cert, "etcdCert"),
        (config.ca_file, config.ca, "etcdCACert"),
    ):
        if inline:
            certificates += from_pem(inline, label)
        elif path:
            try:
                certificates += from_pem(Path(path).read_text(errors="replace"), path)
            except OSError as error:
                errors.append(f"{path}: {os.strerror(error.errno or 0)}")
    if config.key_file:
        try:
            modes[config.key_file] = Path(config.key_file).stat().st_mode & 0o777
            if config.cert_file and not errors:
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(
                    config.cert_file, config.key_file, password=""
                )
        except ssl.SSLError as error:
            reason = (error.reason or "unreadable").lower().replace("_", " ")
            errors.append(f"{config.key_file} and {config.cert_file} do not fit: {reason}")
        except OSError as error:
            errors.append(f"{config.key_file}: {os.strerror(error.errno or 0)}")
    return certificates, errors, modes


def endpoint(url: str, config: DatastoreConfig) -> Endpoint:
    """The facts about one endpoint: connection, certificate, whether it verifies, its clock."""
    try:
        parsed = parsing.url(config.name("etcd_endpoints"), url, parsing.ETCD_PORT)
    except InvalidValue as error:
        return Endpoint(url=url, host="", error=str(error))
    host, port = parsed.host, parsed.port
    try:
        socket.create_connection((host, port), TIMEOUT).close()
    except OSError as error:
        return Endpoint(url=url, host=host, error=_reason(error))
    if not parsed.secure:
        asked, clock = _clock(http.client.HTTPConnection(host, port, timeout=TIMEOUT))
        return Endpoint(url=url, host=host, clock=clock, asked_at=asked)
    served, trouble = _served(host, port, config)
    if served is None:
        return Endpoint(url=url, host=host, error=trouble)
    context = _context(config, verify=False)
    asked, clock = _clock(http.client.HTTPSConnection(host, port, timeout=TIMEOUT, context=context))
    return Endpoint(
        url=url,
        host=host,
        certificate=served,
        verify_error=_verified(host, port, config),
        clock=clock,
        asked_at=asked,
    )


def _context(config: DatastoreConfig, *, verify: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    if verify:
        if config.ca_file:
            context.load_verify_locations(config.ca_file)
        elif config.ca:
            context.load_verify_locations(cadata=config.ca)
        else:
            context.load_default_certs()
    # An unreadable key is a finding of its own; the endpoint may answer without one.
    with contextlib.suppress(OSError, ssl.SSLError):
        if config.cert_file and config.key_file:
            context.load_cert_chain(config.cert_file, config.key_file, password="")
    return context


def _served(host: str, port: int, config: DatastoreConfig) -> tuple[Certificate | None, str]:
    try:
        with (
            socket.create_connection((host, port), TIMEOUT) as plain,
            _context(config, verify=False).wrap_socket(plain, server_hostname=host) as tls,
        ):
            raw = tls.getpeercert(binary_form=True)
    except OSError as error:
        return None, _reason(error)
    if raw is None:
        return None, "no certificate was served"
    return from_pem(ssl.DER_cert_to_PEM_cert(raw), f"{host}:{port}")[0], ""


def _verified(host: str, port: int, config: DatastoreConfig) -> str:
    """Empty if the chain leads to the authority, else why not. Other checks judge the dates."""
    try:
        with (
            socket.create_connection((host, port), TIMEOUT) as plain,
            _context(config, verify=True).wrap_socket(plain, server_hostname=host),
        ):
            return ""
    except ssl.SSLCertVerificationError as error:
        return "" if "expired" in error.verify_message else error.verify_message
    except OSError as error:
        return _reason(error)


def _clock(connection: http.client.HTTPConnection) -> tuple[datetime | None, datetime | None]:
    """(time of the request, the server's Date header); None where there is none."""
    try:
        connection.request("GET", "/version")
        asked = datetime.now(UTC)
        date = connection.getresponse().getheader("Date")
        return asked, parsedate_to_datetime(date) if date else None
    except (OSError, http.client.HTTPException, ValueError):
        return None, None
    finally:
        connection.close()


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT:g} s"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {(error.reason or str(error)).lower().replace('_', ' ')}"
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
