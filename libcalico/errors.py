"""Errors as values with context, until an edge turns them into one clear sentence.

Every error says what was tried, on which object, what the system said and, where we know,
what to do. The edges (CNI result, `calicoctl`, logs) print `str(error)` and nothing else.
Tested in tests/libcalico/test_etcd_limits.py and tests/libcalico/test_tls.py.
"""

from __future__ import annotations

import msgspec

NO_DOCUMENT = (msgspec.DecodeError, UnicodeError, RecursionError)
"""What reading bytes of others raises where they are no document of ours.

`[[[[...` nests without end and raises RecursionError, which no other of the two is. A handler of
one catches all three (`./run lint`).
"""
LONGEST_VALUE = 300
"""Characters of a wrong value that an error shows."""


class MuslinError(Exception):
    """The base of every error that an operator may read."""


class InvalidValue(MuslinError):
    """A field holds a value that is not allowed.

    `field` is a path such as `spec.cidr`, `value` what was found, `rule` what is allowed.
    """

    def __init__(self, field: str, value: object, rule: str, subject: str = "") -> None:
        self.field, self.value, self.rule, self.subject = field, value, rule, subject
        where = f"{subject}: " if subject else ""
        shown = repr(value)
        if len(shown) > LONGEST_VALUE:
            shown = f"{shown[:LONGEST_VALUE]}..."
        super().__init__(f"{where}{field}: {shown} is not valid: {rule}")


class DatastoreError(MuslinError):
    """The datastore did not do what was asked."""


class DatastoreUnavailable(DatastoreError):
    """No endpoint answered within the deadline; trying again later may help."""


class CertificateProblem(DatastoreUnavailable):
    """TLS with the datastore cannot work; the text names file, subject, dates and remedy.

    `subject` is the file, setting or endpoint.
    """

    def __init__(self, text: str, subject: str = "") -> None:
        self.subject = subject
        super().__init__(text)


class LoginFailed(DatastoreError):
    """The datastore does not know this user, or not with this password."""


class PermissionDenied(DatastoreError):
    """The datastore knows us, and our role does not allow this."""


class ValueTooLarge(DatastoreError):
    """An object is larger than the datastore takes."""


class DatastoreFull(DatastoreError):
    """The datastore answers, and takes nothing new until an operator makes room."""


class NotFound(DatastoreError):
    """The object does not exist."""


class AlreadyExists(DatastoreError):
    """The object exists already."""


class UnsupportedKind(MuslinError):
    """A resource kind that this release does not serve."""
