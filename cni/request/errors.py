"""CNI error codes and the one exception that becomes a CNI error object.

A runtime reads two things of a failure: the exit status and one JSON object on stdout. The
code tells it what to do next (11: try again; 3: nothing to clean up), so codes have
one meaning. Own codes start at 100.

Invariant CNI-1: each code is used for exactly what the specification says.

Source: CNI specification 1.1.0, "Error"; conformance ERR-01 to ERR-18. Tested in
`tests/cni/test_result.py` and, from outside, by the vectors.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from libcalico.errors import MuslinError


class Code(IntEnum):
    """Codes of the CNI specification, and those that its reference library adds."""

    INCOMPATIBLE_VERSION = 1
    UNSUPPORTED_FIELD = 2
    UNKNOWN_CONTAINER = 3
    INVALID_ENVIRONMENT = 4
    IO_FAILURE = 5
    DECODING_FAILURE = 6
    INVALID_CONFIG = 7
    INVALID_NETNS = 8
    TRY_AGAIN_LATER = 11
    PLUGIN_NOT_AVAILABLE = 50
    LIMITED_CONNECTIVITY = 51
    CALICO = 100
    INTERNAL = 999


class CNIError(MuslinError):
    """A failure with the code, the short sentence and the long text that the runtime gets.

    `msg` is one line that stands alone; `details` may be empty. Neither holds secrets.
    """

    def __init__(self, code: int, msg: str, details: str = "") -> None:
        self.code, self.msg, self.details = int(code), " ".join(msg.split()), details
        super().__init__(f"{self.msg}; {details}" if details else self.msg)


def error_object(error: CNIError, cni_version: str) -> bytes:
    """Return the error object for stdout, with a newline (ERR-01).

    `cni_version` is the request's, or our newest when that could not be read (ERR-02).
    """
    body: dict[str, object] = {
        "cniVersion": cni_version,
        "code": error.code,
        "msg": error.msg,
    }
    if error.details:
        body["details"] = error.details
    return msgspec.json.encode(body) + b"\n"
