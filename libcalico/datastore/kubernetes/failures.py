"""What the Kubernetes API answers, as errors of the datastore interface.

Tested in tests/libcalico/test_kubernetes_failures.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from libcalico.datastore.interface import Compacted
from libcalico.errors import (
    DatastoreError,
    DatastoreUnavailable,
    InvalidValue,
    LoginFailed,
    PermissionDenied,
    ValueTooLarge,
)
from libcalico.kubernetes.errors import (
    ApiError,
    Busy,
    Forbidden,
    Gone,
    KubernetesError,
    ObjectNotFound,
    Unauthorized,
)

TOO_LARGE, UNPROCESSABLE = 413, 422


@contextmanager
def translated() -> Iterator[None]:
    """Raise errors of the API as those of the interface."""
    try:
        yield
    except KubernetesError as error:
        raise as_datastore_error(error) from None


def as_datastore_error(error: KubernetesError) -> Exception:
    """The error of the interface for one of the API's.

    Only DatastoreUnavailable means that a later attempt may succeed.
    """
    text = str(error)
    match error:
        case Gone():
            return Compacted(text)
        case Forbidden():
            return PermissionDenied(text)
        case Unauthorized():
            return LoginFailed(text)
        case Busy():
            return DatastoreUnavailable(text)
        case ObjectNotFound():
            return DatastoreError(f"{text}; are the resource definitions of Calico installed?")
        case ApiError(status=status) if status == TOO_LARGE or "too large" in text:
            return ValueTooLarge(text)
        case ApiError(status=status) if status == UNPROCESSABLE:
            return InvalidValue("$", "...", text)
        case ApiError(status=status) if 400 <= status < 500:
            return DatastoreError(text)
    return DatastoreUnavailable(text)
