"""The PEM texts of a configuration, or an error that names the file that is wrong.

Everything that can be known without a network is said here, before the first packet: a file
that cannot be read, that holds something else, a key behind a passphrase, a key of another
certificate. Tested in tests/libcalico/test_tls.py and test_pem.py there.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import x509
from libcalico.errors import CertificateProblem
from libcalico.identity import load_identity, reason_of


@dataclass(frozen=True, slots=True)
class Material:
    """PEM texts as a connection uses them, each empty where none is configured."""

    ca: bytes = b""
    cert: bytes = b""
    key: bytes = b""


def labels(config: DatastoreConfig) -> dict[str, str]:
    """How an error names each text: by its file, or by the setting that holds it."""
    return {
        "ca": config.ca_file or "etcdCACert (inline)",
        "cert": config.cert_file or "etcdCert (inline)",
        "key": config.key_file or "etcdKey (inline)",
    }


def settle(config: DatastoreConfig) -> Material:
    """The PEM texts of a configuration. Raises CertificateProblem naming the file.

    OpenSSL decides what is a certificate; what only `cryptography` cannot read is taken.
    """
    names = labels(config)
    material = Material(
        ca=_content(config.ca_file, config.ca, "CA certificate"),
        cert=_content(config.cert_file, config.cert, "client certificate"),
        key=_content(config.key_file, config.key, "client key"),
    )
    if material.ca:
        _chain(material.ca, names["ca"], "CA certificate")
    if material.cert:
        _chain(material.cert, names["cert"], "client certificate")
        _refuse_key(material.key, names["key"])
        _fit(material, names)
    return material


def _content(file: str, inline: str, what: str) -> bytes:
    if not file:
        return inline.encode()
    try:
        return Path(file).read_bytes()
    except OSError as problem:
        raise CertificateProblem(
            f"the etcd {what} {file} cannot be read: {problem.strerror}", file
        ) from problem


def _chain(text: bytes, label: str, what: str) -> None:
    """Refuse a text in which OpenSSL finds no certificate, or a damaged one."""
    try:
        kinds = [kind for kind, _ in x509.pem_parts(text)]
        certified = any(kind in x509.KINDS for kind in kinds)
        if certified:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(cadata=text.decode("ascii", errors="ignore"))
    except (ValueError, ssl.SSLError) as problem:
        raise CertificateProblem(f"the etcd {what} {label} is damaged: {problem}", label) from None
    if not certified:
        holds = f"it holds {', '.join(kinds)}" if kinds else "it holds no PEM"
        if text[:1] == b"\x30":
            holds = "it is DER, not PEM (openssl x509 -inform DER converts it)"
        raise CertificateProblem(f"the etcd {what} {label} has no certificate: {holds}", label)


def _refuse_key(text: bytes, label: str) -> None:
    try:
        kinds = [kind for kind, _ in x509.pem_parts(text)]
    except ValueError as problem:
        raise CertificateProblem(
            f"the etcd client key {label} is damaged: {problem}", label
        ) from None
    if "ENCRYPTED PRIVATE KEY" in kinds or b"Proc-Type: 4,ENCRYPTED" in text:
        raise CertificateProblem(
            f"the etcd client key {label} is encrypted: give one without a passphrase"
            " (openssl pkey -in KEY -out PLAIN, mode 0600)",
            label,
        )
    if not any(kind.endswith("PRIVATE KEY") for kind in kinds):
        holds = f"it holds {', '.join(kinds)}" if kinds else "it holds no PEM"
        raise CertificateProblem(f"the etcd client key {label} has no private key: {holds}", label)


def _fit(material: Material, names: dict[str, str]) -> None:
    """Refuse a key that does not belong to the certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Whether a key is strong enough is for the connection to say, not for this comparison.
    context.set_ciphers("ALL:@SECLEVEL=0")
    try:
        identify(context, material)
    except ssl.SSLError as problem:
        said = reason_of(problem)
        if "mismatch" not in said:
            raise CertificateProblem(
                f"the etcd client key {names['key']} cannot be used: {said}", names["key"]
            ) from None
        raise CertificateProblem(
            f"the etcd client key {names['key']} is not the key of the certificate"
            f" {names['cert']} ({_subject(material.cert)}): give the two that were made together",
            names["key"],
        ) from None


def _subject(text: bytes) -> str:
    """Whose the first certificate of a PEM text is, or why that cannot be read."""
    try:
        return f"subject {x509.parse(x509.encoded(text)[0]).subject}"
    except ValueError as problem:
        return f"which cannot be read: {problem}"


def identify(context: ssl.SSLContext, material: Material) -> None:
    if material.cert:
        load_identity(context, material.cert, material.key)


def context_of(material: Material) -> ssl.SSLContext:
    """A TLS context for HTTP/2 that trusts the servers that gRPC trusts by the same texts.

    Raises ssl.SSLError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    context.load_verify_locations(cadata=material.ca.decode())
    if material.cert and material.key:
        load_identity(context, material.cert, material.key)
    return context
