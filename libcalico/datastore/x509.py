"""What stands in an X.509 certificate, as far as an operator needs it to see what is wrong.

The TLS libraries say that a certificate "failed verification". To mend it, an operator needs its
subject, issuer, dates and names, which the package `cryptography` reads. Trust is decided by the
TLS library alone, never by this file. What `cryptography` cannot read raises ValueError, and
OpenSSL may still take it. Of malformed extensions none is read: the rest of the certificate is.

Tested in tests/libcalico/test_tls.py against openssl(1), and in tests/libcalico/test_x509.py.
"""

from __future__ import annotations

import base64
import binascii
import re
import warnings
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509

KINDS = ("CERTIFICATE", "X509 CERTIFICATE")
"""The labels of the PEM parts that hold a certificate and nothing else."""
_PEM = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----\s*(.*?)-----END \1-----", re.DOTALL)
_PURPOSE_NAMES = {
    "1.3.6.1.5.5.7.3.1": "serverAuth",
    "1.3.6.1.5.5.7.3.2": "clientAuth",
    "2.5.29.37.0": "any",
}


@dataclass(frozen=True, slots=True)
class Certificate:
    """One certificate. `names` are `DNS:...` and `IP:...`; `purposes` empty means any.

    Both are empty where an extension is malformed.
    """

    subject: str
    issuer: str
    not_before: datetime
    not_after: datetime
    names: tuple[str, ...] = ()
    purposes: tuple[str, ...] = ()
    authority: bool = False

    def described(self) -> str:
        """Subject, issuer, dates and names in one line."""
        names = ", ".join(self.names) or "none"
        return (
            f"subject {self.subject}, issuer {self.issuer}, valid {self.not_before:%Y-%m-%d %H:%M}"
            f" to {self.not_after:%Y-%m-%d %H:%M} UTC, SAN {names}"
        )

    def dates(self, now: datetime) -> str:
        """Why the certificate is not valid at `now`; empty when it is."""
        if now > self.not_after:
            return f"it expired on {self.not_after:%Y-%m-%d %H:%M} UTC (now {now:%Y-%m-%d %H:%M})"
        if now < self.not_before:
            return (
                f"it is not valid before {self.not_before:%Y-%m-%d %H:%M} UTC"
                f" (now {now:%Y-%m-%d %H:%M}: is this machine's clock right?)"
            )
        return ""


def pem_parts(text: bytes) -> list[tuple[str, bytes]]:
    """(label, DER) of every PEM part; ValueError when a part is not base64."""
    parts = []
    for label, body in _PEM.findall(text):
        # Old encrypted keys carry header lines before the base64.
        lines = [line for line in body.split() if b":" not in line and b"," not in line]
        try:
            parts.append((label.decode(), base64.b64decode(b"".join(lines), validate=True)))
        except binascii.Error as problem:
            raise ValueError(f"the part {label.decode()} is not base64: {problem}") from None
    return parts


def certificates(text: bytes) -> list[Certificate]:
    """All certificates of a PEM text, in order. Raises ValueError if one cannot be read."""
    return [parse(der) for der in encoded(text)]


def encoded(text: bytes) -> list[bytes]:
    """The DER of every certificate of a PEM text, in order. Raises ValueError as `pem_parts`."""
    return [der for label, der in pem_parts(text) if label in KINDS]


def parse(der: bytes) -> Certificate:
    """A certificate from DER. Raises ValueError for anything else."""
    # 35 ms and 11 MB: a program that shows certificates pays for it, and an agent when its first
    # connection by TLS fails, for the reason.
    from cryptography import x509

    try:
        # What it deprecates, such as serial number 0, is no matter of who reads it here.
        with warnings.catch_warnings(action="ignore"):
            return _certificate(x509.load_der_x509_certificate(der))
    except x509.InvalidVersion as error:
        raise ValueError(f"not a certificate: {error}") from None


def _certificate(certificate: x509.Certificate) -> Certificate:
    from cryptography.x509 import BasicConstraints, ExtendedKeyUsage, SubjectAlternativeName

    extensions = {type(one.value): one.value for one in _extensions(certificate)}
    alternatives = extensions.get(SubjectAlternativeName, ())
    purposes = [usage.dotted_string for usage in extensions.get(ExtendedKeyUsage, ())]
    constraints = extensions.get(BasicConstraints)
    return Certificate(
        _name(certificate.subject),
        _name(certificate.issuer),
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        tuple(text for one in alternatives if (text := _alternative(one))),
        tuple(_PURPOSE_NAMES.get(purpose, purpose) for purpose in purposes),
        constraints is not None and constraints.ca,
    )


def _extensions(certificate: x509.Certificate) -> x509.Extensions:
    """The extensions; none where one is malformed, since OpenSSL takes such a certificate."""
    from cryptography import x509

    try:
        return certificate.extensions
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return x509.Extensions([])


def _alternative(name: x509.GeneralName) -> str:
    """`DNS:...`, `IP:...` or `URI:...`; empty for other kinds."""
    from cryptography.x509 import DNSName, IPAddress, UniformResourceIdentifier

    kinds = {DNSName: "DNS", IPAddress: "IP", UniformResourceIdentifier: "URI"}
    kind = kinds.get(type(name))
    return f"{kind}:{name.value}" if kind else ""


def _name(name: x509.Name) -> str:
    return ",".join(attribute.rfc4514_string() for attribute in name) or "(empty)"
