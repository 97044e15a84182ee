"""Certificates of a lab: an authority, a server, a client, made with openssl(1), good for days.

Keys are made in a directory that only its owner can read and stay 0600. Each run has an authority
of its own, so the files of one lab open no other. Tested in tests/e2e/test_tls.py.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import proc

DAYS = "30"
_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Certificates:
    """PEM files."""

    ca: Path
    server_cert: Path
    server_key: Path
    client_cert: Path
    client_key: Path


def make_certificates(folder: Path, addresses: Sequence[str] = ("127.0.0.1",)) -> Certificates:
    """Make them in a new folder (0700); the server is known by `addresses`. Raises LabError.

    The server's certificate is good for a client too: etcd's own gateway connects with it.
    """
    folder.mkdir(parents=True, mode=0o700)
    authority(folder)
    names = ",".join(f"IP:{address}" for address in addresses)
    sign(folder, "server", f"subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\n")
    sign(folder, "client", "extendedKeyUsage=clientAuth\n")
    for key in folder.glob("*.key"):
        key.chmod(0o600)
    return Certificates(
        folder / "ca.pem",
        folder / "server.pem",
        folder / "server.key",
        folder / "client.pem",
        folder / "client.key",
    )


def authority(folder: Path) -> None:
    """A self-signed authority."""
    subject = ("-subj", "/CN=muslin-lab-ca", "-days", DAYS)
    openssl(folder, "req", "-x509", *_CURVE, *subject, "-keyout", "ca.key", "-out", "ca.pem")


def sign(folder: Path, name: str, extensions: str) -> None:
    """A key and a certificate of the authority."""
    request, subject = f"{name}.csr", f"/CN=muslin-lab-{name}"
    openssl(folder, "req", *_CURVE, "-subj", subject, "-keyout", f"{name}.key", "-out", request)
    (folder / f"{name}.ext").write_text(extensions)
    issuer = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", DAYS)
    files = ("-in", request, "-out", f"{name}.pem", "-extfile", f"{name}.ext")
    openssl(folder, "x509", "-req", *issuer, *files)


def openssl(folder: Path, word: str, *arguments: str) -> None:
    """Run openssl(1) in the folder; LabError with what it said."""
    settings = {"PATH": os.environ.get("PATH", os.defpath), "RANDFILE": os.devnull}
    proc.run(["env", "-C", str(folder), "openssl", word, *arguments], environment=settings)
