"""A TLS client's certificate and key, loaded from memory; and why OpenSSL refuses.

Tested in tests/libcalico/test_tls.py and tests/libcalico/test_kubernetes_tls.py.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager


def load_identity(context: ssl.SSLContext, cert: bytes, key: bytes) -> None:
    """Give a context its certificate chain and key, both PEM. Raises ssl.SSLError."""
    with _in_memory(cert) as cert_path, _in_memory(key) as key_path:
        # Without a callback OpenSSL would ask the terminal for a passphrase.
        context.load_cert_chain(cert_path, key_path, password=lambda: b"")


@contextmanager
def _in_memory(text: bytes) -> Iterator[str]:
    """A path to bytes that never touch a disk: the loader takes paths only."""
    fd = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        os.write(fd, text)
        os.lseek(fd, 0, os.SEEK_SET)
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


def reason_of(problem: ssl.SSLError) -> str:
    """OpenSSL's reason in plain words: `wrong version number`."""
    return (problem.reason or str(problem)).lower().replace("_", " ")
