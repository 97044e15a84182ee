"""What the Kubernetes API, or the way to it, answers instead of what was asked.

The classes are those that callers treat differently; the text of an answer is in its message,
as the server said it (API conventions, "Response Status Kind").
Tested in tests/libcalico/test_kubernetes_wire.py.
"""

from __future__ import annotations

import msgspec

from libcalico.errors import MuslinError
from libcalico.kubernetes.protobuf import Unpackable, is_packed, read_status

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)
"""What decoding raises; text that is no UTF-8 raises its own."""


class KubernetesError(MuslinError):
    """The base of all."""


class NoAccess(KubernetesError):
    """Address or credentials of the API are not configured; the text names what is missing."""


class Unreachable(KubernetesError):
    """No answer: connection, TLS, a deadline, or bytes that are no HTTP."""


class ApiError(KubernetesError):
    """The API answered with an error. `status` is HTTP's, `reason` Kubernetes' own word."""

    def __init__(
        self, text: str, status: int = 0, reason: str = "", retry_after: float = 0.0
    ) -> None:
        super().__init__(text)
        self.status, self.reason, self.retry_after = status, reason, retry_after


class Unauthorized(ApiError):
    """401: the token or certificate is not known, or not any more."""


class Forbidden(ApiError):
    """403: the API knows us, and RBAC does not allow this."""


class ObjectNotFound(ApiError):
    """404: no such object, or no such kind."""


class Conflict(ApiError):
    """409: it exists already, or was changed meanwhile."""


class Gone(ApiError):
    """410: the version to go on from is forgotten; list again."""


class Busy(ApiError):
    """429 or 503: try again, after `retry_after` seconds where the server says so."""


_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: ObjectNotFound,
    409: Conflict,
    410: Gone,
    429: Busy,
    503: Busy,
}
_REMEDIES = {
    401: "; is the token or certificate expired, or of another cluster?",
    403: "; does RBAC allow it?",
}


class Status(msgspec.Struct):
    """`Status` of the API machinery: the body of a failed request's answer."""

    message: str = ""
    reason: str = ""
    code: int = 0


def of_status(tried: str, code: int, body: bytes, retry_after: float = 0.0) -> ApiError:
    """The error of an answer; `tried` names method and address."""
    try:
        if is_packed(body):
            said = msgspec.convert(read_status(body), Status)
        else:
            said = msgspec.json.decode(body, type=Status)
    except (*UNREADABLE, Unpackable):
        said = Status(message=body[:200].decode(errors="replace").strip())
    kind = _BY_STATUS.get(code, ApiError)
    text = f"{tried}: {code} {said.message or said.reason}{_REMEDIES.get(code, '')}"
    return kind(text, code, said.reason, retry_after)
