"""What stands in an X.509 certificate, as far as an operator needs it to see what is wrong.

The TLS libraries say that a certificate "failed verification"; an operator who has to mend it needs
its subject, issuer, dates and names. Only those are read here, from DER (RFC 5280 section 4.1,
X.690); trust is decided by the TLS library alone, never by this file. All bytes that are no
certificate raise ValueError.

Tested in tests/libcalico/test_tls.py against openssl(1).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address

_PEM = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----\s*(.*?)-----END \1-----", re.DOTALL)
_NAMES = {"2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST"}
_NAMES |= {"2.5.4.10": "O", "2.5.4.11": "OU"}
_SAN, _BASIC, _PURPOSES = "2.5.29.17", "2.5.29.19", "2.5.29.37"
_PURPOSE_NAMES = {
    "1.3.6.1.5.5.7.3.1": "serverAuth",
    "1.3.6.1.5.5.7.3.2": "clientAuth",
    "2.5.29.37.0": "any",
}
_OID, _SEQUENCE, _UTC_TIME, _TIME = 0x06, 0x30, 0x17, 0x18


@dataclass(frozen=True, slots=True)
class Certificate:
    """One certificate. `names` are `DNS:...` and `IP:...`; `purposes` empty means any."""

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
    """All certificates of a PEM text, in order. Raises ValueError."""
    return [parse(der) for label, der in pem_parts(text) if label.endswith("CERTIFICATE")]


def parse(der: bytes) -> Certificate:
    """A certificate from DER. Raises ValueError for anything else."""
    try:
        return _certificate(der)
    except (IndexError, StopIteration, UnicodeDecodeError, OverflowError) as problem:
        raise ValueError(f"not a certificate: {problem}") from None


def _certificate(der: bytes) -> Certificate:
    outer = next(_elements(der))
    body = list(_elements(_inside(next(_elements(_inside(outer, _SEQUENCE))), _SEQUENCE)))
    if body[0][0] == 0xA0:
        del body[0]
    _, _, issuer, validity, subject = body[:5]
    begin, end = (_time(one) for one in list(_elements(_inside(validity, _SEQUENCE)))[:2])
    names: tuple[str, ...] = ()
    purposes: tuple[str, ...] = ()
    authority = False
    for oid, value in _extensions(body[6:]):
        if oid == _SAN:
            names = tuple(_alternatives(value))
        elif oid == _PURPOSES:
            listed = _elements(_inside(next(_elements(value)), _SEQUENCE))
            purposes = tuple(
                _PURPOSE_NAMES.get(name, name) for _, b in listed for name in [_oid(b)]
            )
        elif oid == _BASIC:
            flags = list(_elements(_inside(next(_elements(value)), _SEQUENCE)))
            authority = bool(flags) and flags[0] == (0x01, b"\xff")
    return Certificate(_name(subject), _name(issuer), begin, end, names, purposes, authority)


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(tag, content) of the DER elements in a row."""
    at = 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            count = length & 0x7F
            if not 1 <= count <= 4:
                raise ValueError("not a certificate: a length that DER does not have")
            length = int.from_bytes(data[at : at + count])
            at += count
        if at + length > len(data):
            raise ValueError("not a certificate: it breaks off")
        yield tag, data[at : at + length]
        at += length


def _inside(element: tuple[int, bytes], tag: int) -> bytes:
    if element[0] != tag:
        raise ValueError(f"not a certificate: found {element[0]:#04x}, not {tag:#04x}")
    return element[1]


def _extensions(rest: list[tuple[int, bytes]]) -> Iterator[tuple[str, bytes]]:
    for tag, content in rest:
        if tag != 0xA3:
            continue
        for one in _elements(_inside(next(_elements(content)), _SEQUENCE)):
            parts = list(_elements(_inside(one, _SEQUENCE)))
            yield _oid(_inside(parts[0], _OID)), parts[-1][1]


def _alternatives(value: bytes) -> Iterator[str]:
    for tag, content in _elements(_inside(next(_elements(value)), _SEQUENCE)):
        if tag == 0x82:
            yield f"DNS:{content.decode('ascii')}"
        elif tag == 0x87 and len(content) in (4, 16):
            yield f"IP:{ip_address(content)}"
        elif tag == 0x86:
            yield f"URI:{content.decode('ascii')}"


def _name(element: tuple[int, bytes]) -> str:
    parts = []
    for _, group in _elements(_inside(element, _SEQUENCE)):
        for _, pair in _elements(group):
            (_, oid), (_, value) = list(_elements(pair))[:2]
            word = _NAMES.get(_oid(oid), _oid(oid))
            parts.append(f"{word}={value.decode('utf-8', errors='replace')}")
    return ",".join(parts) or "(empty)"


def _time(element: tuple[int, bytes]) -> datetime:
    tag, content = element
    if tag not in (_UTC_TIME, _TIME):
        raise ValueError("not a certificate: no date where one must stand")
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        # RFC 5280: two digits from 50 on are of the last century.
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _oid(content: bytes) -> str:
    first = min(content[0] // 40, 2)
    numbers, value = [first, content[0] - 40 * first], 0
    for byte in content[1:]:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    return ".".join(map(str, numbers))
