"""What one way to the Kubernetes API is made of, as values; secrets never appear in `repr`.

Tested in tests/libcalico/test_kubernetes_access.py and tests/apiserver/test_credentials.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from libcalico import parsing
from libcalico.errors import InvalidValue
from libcalico.kubernetes.errors import NoAccess

Tree = Mapping[str, Any]
DELEGATED = ("exec", "auth-provider", "username", "password")
"""The fields of a kubeconfig's user for whose credential a package is asked (`delegated`)."""


@dataclass(frozen=True, slots=True)
class Access:
    """The address and credentials of the API at one moment.

    PEM texts and the token may be empty.
    """

    server: str
    ca: bytes = field(default=b"", repr=False)
    cert: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    token: str = field(default="", repr=False)
    scheme: str = "Bearer"
    """What the token is: `Bearer`, or `Basic` for a name and a password."""
    server_name: str = ""
    """The name that the server's certificate must have, where it is not the address's."""
    insecure: bool = False
    """Asked for by name: the server is not verified."""

    proxy: parsing.Proxy | None = None
    """The HTTP proxy that connects us."""
    acting_as: tuple[tuple[str, str], ...] = ()
    """The headers of impersonation: for whom the server shall take us."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        url = parsing.address(self.server, path=True)
        return url.host, url.port

    @property
    def secure(self) -> bool:
        """Whether the URL is https."""
        return self.server.startswith("https://")

    @property
    def base(self) -> str:
        """The path before every path of the API; usually empty."""
        return parsing.address(self.server, path=True).path


class Problem(Exception):
    """Why there is no credential: the user's field, and what is wrong with it."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field, self.rule = field, rule


@dataclass(frozen=True, slots=True)
class Credential:
    """A token and a certificate with its key (PEM), any of them empty."""

    token: str = field(default="", repr=False)
    scheme: str = "Bearer"
    cert: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    expires: datetime | None = None
    """From then on it is asked for anew; None: when the API refuses it."""

    def is_over(self) -> bool:
        """Whether it has expired."""
        return self.expires is not None and self.expires <= datetime.now(UTC)


Source = Callable[[], Access]
"""Gives the access as of now. Raises NoAccess."""


@dataclass(frozen=True, slots=True)
class Renewing:
    """A source that may run a program or ask a server, and so take seconds.

    `refused` is called with an access whose token the API refused.
    """

    read: Source
    refused: Callable[[Access], None]

    def __call__(self) -> Access:
        """The present access; a call may block. Raises NoAccess."""
        return self.read()


def refuse(source: Source, access: Access) -> None:
    """Tell a source that the API refused this access, so that the next one has another token."""
    if isinstance(source, Renewing):
        source.refused(access)


def checked(access: Access) -> Access:
    """The same access, if it can be used at all. Raises NoAccess."""
    try:
        parsing.url("the API's address", access.server, path=True)
    except InvalidValue as problem:
        raise NoAccess(str(problem)) from None
    if bool(access.cert) != bool(access.key):
        raise NoAccess("a client certificate and its key go together: one of them is missing")
    if not access.secure and (access.token or access.cert):
        raise NoAccess(f"{access.server}: credentials are sent over https only")
    return access


def token_of(raw: bytes, where: str) -> str:
    """A token without the blanks and line ends that a header must not have.

    Raises NoAccess naming `where`.
    """
    try:
        text = raw.decode("ascii").strip()
    except UnicodeDecodeError:
        text = "\0"
    if text and (not text.isprintable() or " " in text):
        raise NoAccess(f"{where} holds no token")
    return text


def content_of(path: Path, what: str) -> bytes:
    """The content of a file. Raises NoAccess naming `what` and the file."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or problem
        raise NoAccess(f"{what} cannot be read: {path}: {why}") from None
