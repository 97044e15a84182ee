"""Which error of the datastore an answer of the Kubernetes API becomes, and its text in it."""

from __future__ import annotations

import pytest

from libcalico.datastore.interface import Compacted
from libcalico.datastore.kubernetes.failures import as_datastore_error, translated
from libcalico.errors import (
    DatastoreError,
    DatastoreUnavailable,
    InvalidValue,
    LoginFailed,
    PermissionDenied,
    ValueTooLarge,
)
from libcalico.kubernetes.errors import KubernetesError, Unreachable, of_status

TOO_LONG = b'{"message": "etcdserver: request is too large"}'


@pytest.mark.parametrize(
    ("code", "body", "kind"),
    [
        (400, b"bad request", DatastoreError),
        (401, b"who?", LoginFailed),
        (403, b"not you", PermissionDenied),
        (404, b"no such kind", DatastoreError),
        (409, b"it exists", DatastoreError),
        (410, b"forgotten", Compacted),
        (413, b"much", ValueTooLarge),
        (422, b"spec.cidr: wrong", InvalidValue),
        (429, b"slower", DatastoreUnavailable),
        (500, b"oops", DatastoreUnavailable),
        (500, TOO_LONG, ValueTooLarge),
        (503, b"later", DatastoreUnavailable),
    ],
)
def test_what_an_answer_means(code: int, body: bytes, kind: type[Exception]) -> None:
    answer = of_status("GET /apis/pools", code, body)
    found = as_datastore_error(answer)
    assert type(found) is kind
    assert str(answer) in str(found)


def test_a_kind_that_is_not_there_asks_for_the_definitions() -> None:
    found = as_datastore_error(of_status("GET /apis/pools", 404, b"no such kind"))
    assert "definitions of Calico installed?" in str(found)


def test_no_answer_is_an_unavailable_datastore() -> None:
    with pytest.raises(DatastoreUnavailable, match="refused"), translated():
        raise Unreachable("refused")


def test_what_no_api_said_passes_as_it_is() -> None:
    with pytest.raises(KeyError), translated():
        raise KeyError("ours")
    assert issubclass(Unreachable, KubernetesError)
