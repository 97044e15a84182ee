"""Of a certificate that is malformed in a part, the other parts are read."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from libcalico.datastore import x509
from tests.support import malformed_certificates as malformed


@pytest.mark.parametrize("case", list(malformed.EXTENSIONS))
def test_malformed_extensions_count_as_none(tmp_path: Path, case: str) -> None:
    text = malformed.make(tmp_path, case).cert.read_bytes()
    (read,) = x509.certificates(text)
    assert (read.subject, read.issuer) == ("CN=marker", "CN=marker")
    assert f"{read.not_before:%Y-%m-%d}" == "2020-01-02"
    assert (read.names, read.purposes, read.authority) == ((), (), False)


@pytest.mark.parametrize("case", list(malformed.UNREADABLE))
def test_what_cannot_be_read_raises_one_error(tmp_path: Path, case: str) -> None:
    text = malformed.make(tmp_path, case).cert.read_text()
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    with pytest.raises(ValueError, match="InvalidValue"):
        x509.certificates(text.encode())
