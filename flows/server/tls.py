"""The server's credentials: mutual TLS from files, which may change while the server runs.

gRPC asks at each handshake. Files that cannot be read, or whose key does not fit, leave what was
in force, and are told once.
Tested in tests/flows/test_server_tls.py.
"""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path

import grpc

from libcalico.errors import MuslinError

log = logging.getLogger(__name__)

Stamps = tuple[tuple[int, int, int], ...]


class Files:
    """Certificate, key and authority by path; `problem` says why newer ones are not in force."""

    def __init__(self, certificate: str, key: str, ca: str) -> None:
        self._certificate, self._key, self._ca = certificate, key, ca
        self._stamps: Stamps = ()
        self.problem = ""

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials that follow the files. Raises MuslinError where they do not work now."""
        first = self._changed()
        if first is None:
            raise MuslinError(f"TLS of the server: {self.problem}")
        return grpc.dynamic_ssl_server_credentials(first, self._changed, True)

    def _changed(self) -> grpc.ServerCertificateConfiguration | None:
        """What is to be used from now on, None for what was; gRPC calls this in any thread."""
        try:
            stamps = tuple(_stamp(one) for one in (self._certificate, self._key, self._ca))
            if stamps == self._stamps:
                return None
            made = self._read()
        except (OSError, ssl.SSLError, ValueError) as error:
            self._tell(str(error) or repr(error))
            return None
        self._stamps, self.problem = stamps, ""
        log.info("TLS: certificate, key and authority are read")
        return made

    def _read(self) -> grpc.ServerCertificateConfiguration:
        # Python's own TLS says what is wrong; gRPC would refuse each handshake without a word.
        trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # Without a callback OpenSSL would ask the terminal for a passphrase.
        trial.load_cert_chain(self._certificate, self._key, password=lambda: b"")
        trial.load_verify_locations(self._ca)
        key, certificate, ca = (
            Path(one).read_bytes() for one in (self._key, self._certificate, self._ca)
        )
        return grpc.ssl_server_certificate_configuration([(key, certificate)], ca)

    def _tell(self, problem: str) -> None:
        if problem != self.problem:
            log.error("TLS: new files are not used: %s", problem)
        self.problem = problem


def _stamp(path: str) -> tuple[int, int, int]:
    status = os.stat(path)
    return status.st_ino, status.st_mtime_ns, status.st_size
