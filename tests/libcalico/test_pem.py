"""OpenSSL decides which certificates are taken; what cannot be read is said, never raised."""

from __future__ import annotations

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
