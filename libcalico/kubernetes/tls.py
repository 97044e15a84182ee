"""TLS contexts of the Kubernetes API, made again only when what they are made of changed."""

from __future__ import annotations

import ssl

from libcalico.identity import load_identity, reason_of
from libcalico.kubernetes.credentials import Access
from libcalico.kubernetes.errors import NoAccess


class Contexts:
    """The TLS context of the last access."""

    def __init__(self) -> None:
        self._made_of: tuple[object, ...] = ()
        self._context: ssl.SSLContext | None = None

    def of(self, access: Access) -> ssl.SSLContext | None:
        """The context for an access, None without TLS. Raises NoAccess for unusable PEM."""
        if not access.secure:
            return None
        made_of = (access.ca, access.cert, access.key, access.insecure)
        if made_of != self._made_of or self._context is None:
            self._context, self._made_of = _context(access), made_of
        return self._context


def _context(access: Access) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif access.ca:
        try:
            context.load_verify_locations(cadata=access.ca.decode("ascii"))
        except (ssl.SSLError, UnicodeDecodeError, ValueError) as problem:
            raise NoAccess(f"the API's CA is no PEM certificate: {problem}") from None
    else:
        context.load_default_certs()
    if access.cert:
        try:
            load_identity(context, access.cert, access.key)
        except ssl.SSLError as problem:
            reason = reason_of(problem)
            raise NoAccess(f"the client certificate and its key cannot be used: {reason}") from None
    return context
