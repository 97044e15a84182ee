"""A kubeconfig, of one file or of several that are merged as kubectl merges them.

Of several files (separated by `:`) the first that names a current context decides it, and of two
clusters, contexts or users with one name the first counts; files that do not exist are passed
over, and paths are relative to the file that they stand in. (The package `kubernetes` lets the
last current context win.) What a certificate or a token cannot say (`exec`, `auth-provider`, a
password) is asked of that package, see `delegated`; everything else is read here.
Tested in tests/libcalico/test_kubernetes_access.py, test_kubernetes_delegated.py and, with a real
API server, in tests/apiserver/test_kubeconfig.py.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from libcalico import parsing
from libcalico.kubernetes.credentials import (
    DELEGATED,
    Access,
    Credential,
    Problem,
    Tree,
    checked,
    content_of,
    token_of,
)
from libcalico.kubernetes.errors import NoAccess
from libcalico.kubernetes.impersonation import headers

if TYPE_CHECKING:
    from libcalico.kubernetes.delegated import Delegated


@dataclass(frozen=True, slots=True)
class _File:
    """One file as it was parsed: its name in errors, its folder, its bytes, its values."""

    label: str
    folder: Path
    raw: bytes
    tree: Tree

    def bad(self, name: str, rule: str) -> NoAccess:
        """The error of one of its fields."""
        return NoAccess(f"{self.label}: {name}: {rule}")

    def word(self, tree: Tree, where: str, name: str) -> str:
        """A field that is text; empty if it is not there. Raises NoAccess."""
        value = tree.get(name, "")
        if not isinstance(value, str):
            raise self.bad(f"{where}.{name}".strip("."), "must be text")
        return value

    def flag(self, tree: Tree, where: str, name: str) -> bool:
        """A field that is true or false; false if it is not there. Raises NoAccess."""
        value = tree.get(name)
        if not isinstance(value, bool | None):
            # The text "false" is not false.
            raise self.bad(f"{where}.{name}", "must be true or false")
        return bool(value)

    def pem(self, tree: Tree, name: str) -> bytes:
        """`NAME-data` in base64, else the file `NAME` beside this one. Raises NoAccess."""
        if data := self.word(tree, "", f"{name}-data"):
            try:
                return base64.b64decode(data, validate=True)
            except binascii.Error:
                raise self.bad(f"{name}-data", "must be base64") from None
        at = self.word(tree, "", name)
        return content_of(self.folder / at, f"{name} of {self.label}") if at else b""


class Kubeconfig:
    """A kubeconfig; `context` empty means its current one. A file is parsed when it changes.

    `path` may be several, separated by `:`. `inline` is the text of one, in place of files.
    """

    def __init__(self, path: str, inline: str = "", context: str = "") -> None:
        self._path, self._inline, self._context = path, inline, context
        self._label = "kubeconfigInline" if inline else path
        self._files: list[_File] = []
        self._delegated: Delegated | None = None

    def __call__(self) -> Access:
        """The present access; a call may run the user's `exec`.

        Raises NoAccess of field and file.
        """
        self._files = list(self._read())
        _, context = self._named("contexts", "context", self._context or self._current())
        at, cluster = self._named("clusters", "cluster", str(context.get("cluster") or ""))
        user_name = str(context.get("user") or "")
        of, user = self._named("users", "user", user_name) if user_name else (at, {})
        ca = at.pem(cluster, "certificate-authority")
        credential = self._credential(of, user_name, user, cluster, ca)
        return checked(
            Access(
                at.word(cluster, "cluster", "server"),
                ca=ca,
                cert=credential.cert or of.pem(user, "client-certificate"),
                key=credential.key or of.pem(user, "client-key"),
                token=token_of(credential.token.encode(), of.label),
                scheme=credential.scheme,
                server_name=at.word(cluster, "cluster", "tls-server-name"),
                insecure=at.flag(cluster, "cluster", "insecure-skip-tls-verify"),
                proxy=_proxy(at, cluster),
                acting_as=self._acting_as(of, user_name, user),
            )
        )

    def refused(self, access: Access) -> None:
        """Drop a credential that a program gave if it is this one, which the API refused."""
        if self._delegated is not None:
            self._delegated.refused(access.token, access.cert)

    def _credential(self, of: _File, name: str, user: Tree, cluster: Tree, ca: bytes) -> Credential:
        if at := of.word(user, "user", "tokenFile"):
            # It rotates, the token beside it does not: client-go prefers the file too.
            read = content_of(of.folder / at, f"tokenFile of {of.label}")
            return Credential(read.decode(errors="replace"))
        token = of.word(user, "user", "token")
        if token or not any(user.get(field) for field in DELEGATED):
            return Credential(token)
        if self._delegated is None:
            from libcalico.kubernetes.delegated import Delegated

            self._delegated = Delegated()
        try:
            return self._delegated.credential(user, cluster, ca, of.folder)
        except Problem as problem:
            raise of.bad(f"user {name!r}: users[].user.{problem.field}", problem.rule) from None

    @staticmethod
    def _acting_as(of: _File, name: str, user: Tree) -> tuple[tuple[str, str], ...]:
        try:
            return headers(user)
        except ValueError as problem:
            raise of.bad(f"user {name!r}: users[].user.as", str(problem)) from None

    def _read(self) -> Iterator[_File]:
        before = {(one.label, one.raw): one for one in self._files}
        for label, folder, raw in self._contents():
            yield before.get((label, raw)) or _File(label, folder, raw, _parse(label, raw))

    def _contents(self) -> Iterator[tuple[str, Path, bytes]]:
        if self._inline:
            yield self._label, Path(), self._inline.encode()
            return
        listed = [Path(one).expanduser() for one in self._path.split(os.pathsep) if one]
        there = [one for one in listed if _may_be_there(one)]
        # Where none is there the first one's error says so.
        for path in there or listed[:1]:
            yield str(path), path.parent, content_of(path, "the kubeconfig")

    def _current(self) -> str:
        for one in self._files:
            if name := one.word(one.tree, "", "current-context"):
                return name
        rule = "is empty; set K8S_CURRENT_CONTEXT or mend the file"
        raise NoAccess(f"{self._label}: current-context: {rule}")

    def _named(self, list_name: str, inner: str, name: str) -> tuple[_File, Tree]:
        for one in self._files:
            listed = one.tree.get(list_name) or ()
            if not isinstance(listed, list | tuple):
                raise one.bad(list_name, "must be a list")
            for entry in listed:
                if isinstance(entry, dict) and entry.get("name") == name:
                    value = entry.get(inner)
                    return one, value if isinstance(value, dict) else {}
        raise NoAccess(f"{self._label}: {list_name}: holds none with the name {name!r}")


def _may_be_there(path: Path) -> bool:
    """False where it does not exist. Other errors are reported when the file is read."""
    try:
        path.stat()
    except (FileNotFoundError, ValueError):
        return False
    except OSError:
        pass
    return True


def _parse(label: str, raw: bytes) -> Tree:
    try:
        tree = parsing.yaml_tree(raw)
    except ValueError as problem:
        raise NoAccess(f"{label} is not YAML: {problem}") from None
    if not isinstance(tree, dict):
        raise NoAccess(f"{label} is no kubeconfig")
    return tree


def _proxy(at: _File, cluster: Tree) -> parsing.Proxy | None:
    url = at.word(cluster, "cluster", "proxy-url")
    try:
        return parsing.proxy(url) if url else None
    except ValueError:
        rule = "must be http://HOST:PORT; no other kind of proxy is used"
        raise at.bad("clusters[].cluster.proxy-url", rule) from None
