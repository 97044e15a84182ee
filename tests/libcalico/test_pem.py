"""OpenSSL decides which certificates are taken; what cannot be read is said, never raised."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import pem
from libcalico.errors import CertificateProblem
from tests.support import malformed_certificates as malformed

CASES = [*malformed.EXTENSIONS, *malformed.UNREADABLE]


def config(cert: Path, key: Path) -> DatastoreConfig:
    return DatastoreConfig(
        etcd_endpoints="https://127.0.0.1:1",
        ca_file=str(cert),
        cert_file=str(cert),
        key_file=str(key),
    )


@pytest.mark.parametrize("case", CASES)
def test_a_malformed_certificate_is_taken_with_its_key(tmp_path: Path, case: str) -> None:
    pair = malformed.make(tmp_path, case)
    assert pem.settle(config(pair.cert, pair.key)).cert == pair.cert.read_bytes()


@pytest.mark.parametrize("case", CASES)
def test_the_key_of_another_is_refused_with_a_malformed_certificate(
    tmp_path: Path, case: str
) -> None:
    pair, other = malformed.make(tmp_path, case), malformed.make(tmp_path)
    with pytest.raises(CertificateProblem, match="is not the key of") as problem:
        pem.settle(config(pair.cert, other.key))
    said = "cannot be read" if case in malformed.UNREADABLE else "subject CN=marker"
    assert f"{pair.cert} (" in str(problem.value)
    assert said in str(problem.value)
    assert problem.value.subject == str(other.key)


def test_a_trusted_certificate_of_openssl_is_named_as_what_it_is(tmp_path: Path) -> None:
    pair, trusted = malformed.make(tmp_path), tmp_path / "trusted.pem"
    subprocess.run(["openssl", "x509", "-in", pair.cert, "-trustout", "-out", trusted], check=True)
    with pytest.raises(CertificateProblem) as problem:
        pem.settle(config(trusted, pair.key))
    assert "has no certificate: it holds TRUSTED CERTIFICATE" in str(problem.value)


@pytest.mark.parametrize("kind", ["CERTIFICATE", "X509 CERTIFICATE"])
def test_the_old_label_of_a_certificate_is_taken(tmp_path: Path, kind: str) -> None:
    pair = malformed.make(tmp_path)
    pair.cert.write_text(pair.cert.read_text().replace("CERTIFICATE", kind))
    assert pem.settle(config(pair.cert, pair.key)).ca == pair.cert.read_bytes()
