"""The Secret `calico-etcd-secrets`, made of three PEM files.

A wrong file would be found by every node at once, in a loop: so it is found here. Each must be
PEM of its kind, the key must be that of the certificate, and the certificate one for clients.
Tested in tests/manifests/test_secret.py.
"""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Mapping
from pathlib import Path

NAME = "calico-etcd-secrets"
KEYS = ("etcd-key", "etcd-cert", "etcd-ca")
_KIND = {
    "etcd-key": r"(?:RSA |EC )?PRIVATE KEY",
    "etcd-cert": "CERTIFICATE",
    "etcd-ca": "CERTIFICATE",
}
_TOLD = {"etcd-key": "PRIVATE KEY", "etcd-cert": "CERTIFICATE", "etcd-ca": "CERTIFICATE"}


class SecretError(Exception):
    """A file cannot be what etcd's clients are given."""


def read(files: Mapping[str, Path]) -> dict[str, bytes]:
    """The files' content by its key in the Secret. Raises SecretError that names the file."""
    found: dict[str, bytes] = {}
    for name in KEYS:
        path = files[name]
        try:
            found[name] = path.read_bytes()
        except OSError as error:
            raise SecretError(f"{name}: {path}: {error.strerror}") from None
        text = found[name].decode("ascii", errors="replace")
        if "ENCRYPTED" in text and name == "etcd-key":
            raise SecretError(
                f"{name}: {path}: the key is encrypted; nobody could enter its password"
            )
        whole = rf"-----BEGIN {_KIND[name]}-----\s.*?-----END {_KIND[name]}-----"
        if not re.search(whole, text, re.DOTALL):
            raise SecretError(f"{name}: {path}: holds no PEM block {_TOLD[name]}")
        if name != "etcd-key" and "PRIVATE KEY" in text:
            raise SecretError(f"{name}: {path}: holds a private key, which does not belong there")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=found["etcd-ca"].decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise SecretError(f"etcd-ca: {files['etcd-ca']}: no certificate: {error}") from None
    try:
        context.load_cert_chain(files["etcd-cert"], files["etcd-key"])
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            text = f"is not the key of {files['etcd-cert']}"
            raise SecretError(f"etcd-key: {files['etcd-key']}: {text}") from None
        raise SecretError(f"etcd-cert: {files['etcd-cert']}: {error}") from None
    return found


def document(data: Mapping[str, bytes]) -> str:
    """The Secret as YAML."""
    lines = [f"  {name}: {_encoded(data[name])}\n" for name in KEYS]
    return (
        "apiVersion: v1\nkind: Secret\ntype: Opaque\n"
        f"metadata:\n  name: {NAME}\n  namespace: kube-system\ndata:\n" + "".join(lines)
    )


def filled(manifest: str, data: Mapping[str, bytes]) -> str:
    """A manifest's text with the Secret's values put in; all else stays as it is, comments too.

    Raises SecretError where the manifest does not hold each key exactly once.
    """
    for name in KEYS:
        pattern = re.compile(rf"^(  {name}:)[^\n]*$", re.MULTILINE)
        manifest, count = pattern.subn(rf"\g<1> {_encoded(data[name])}", manifest)
        if count != 1:
            raise SecretError(f"the manifest holds {name!r} {count} times; want one Secret {NAME}")
    return manifest


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
