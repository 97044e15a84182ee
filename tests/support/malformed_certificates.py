"""Certificates that OpenSSL takes and the package `cryptography` reads in part, or not at all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from ssl import DER_cert_to_PEM_cert

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID, NameOID

from tests.support.certificates import Pair

NAME = "marker"
START = datetime(2020, 1, 2, 3, 4, 5)
EXTENSIONS = {
    "an address of 5 bytes": (ExtensionOID.SUBJECT_ALTERNATIVE_NAME, "300787050102030405"),
    "an x400Address": (ExtensionOID.SUBJECT_ALTERNATIVE_NAME, "3002a300"),
    "an EDIPartyName": (ExtensionOID.SUBJECT_ALTERNATIVE_NAME, "3006a504a1020c00"),
    "broken policies": (ExtensionOID.CERTIFICATE_POLICIES, "30030101ff"),
}
"""Extensions that `cryptography` does not read: their number and their bytes."""
UNREADABLE = {
    "a name in T61": (b"\x0c\x06marker", b"\x14\x06mark\xe9r"),
    "a thirteenth month": (b"200102030405Z", b"201302030405Z"),
}
"""What makes a whole certificate unreadable: the bytes that are replaced, and others."""
_ECDSA_WITH_SHA256 = bytes.fromhex("300a06082a8648ce3d040302")


def make(folder: Path, case: str = "") -> Pair:
    """A certificate for 127.0.0.1 that signed itself, malformed as the case says, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    own = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    number, value = EXTENSIONS.get(case, (None, ""))
    builder = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(START)
        .not_valid_after(datetime.now(UTC) + timedelta(days=99))
    )
    if number != own.oid:
        builder = builder.add_extension(own, critical=False)
    if number is not None:
        other = x509.UnrecognizedExtension(number, bytes.fromhex(value))
        builder = builder.add_extension(other, critical=False)
    to_sign = builder.sign(key, hashes.SHA256()).tbs_certificate_bytes.replace(
        *UNREADABLE.get(case, (b"", b""))
    )
    signature = key.sign(to_sign, ec.ECDSA(hashes.SHA256()))
    signed = _der(0x30, to_sign + _ECDSA_WITH_SHA256 + _der(0x03, b"\0" + signature))
    stem = case.replace(" ", "-") or "good"
    pair = Pair(folder / f"{stem}.pem", folder / f"{stem}.key")
    pair.cert.write_text(DER_cert_to_PEM_cert(signed))
    pair.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    pair.key.chmod(0o600)
    return pair


def _der(kind: int, body: bytes) -> bytes:
    """One value of ASN.1 with its tag and length (X.690 section 8.1)."""
    if len(body) < 0x80:
        return bytes((kind, len(body))) + body
    return bytes((kind, 0x82)) + len(body).to_bytes(2, "big") + body
