"""Session passwords (RFC 2385): where they come from. Never logged, never in a `repr`.

BGPPeer and BGPConfiguration name a key of a Secret. A `PasswordSource` resolves such
references: a reader of the Kubernetes API, or `FilePasswords` on hosts outside Kubernetes,
where a directory holds `<secret>/<key>`. The agent says which references it needs; the source
tells their values whenever they change, and only that session is made anew.

  PWD-1  A reference without value refuses its peering; it is never held without password
         unless the reference says `optional`.
  PWD-2  A file that others may read is no secret, and refused.
  PWD-3  After a restart a value that was known holds until the source says otherwise: the reader of
         Secrets may be away, and the session need not end for that (`bgp.agent.saved_decisions`
         keeps them).
Tested in tests/bgp/test_passwords.py.
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from libcalico.process.waiting import set_within

MAX_LENGTH = 80
"""Octets of a key that the kernel takes (TCP_MD5SIG_MAXKEYLEN)."""


class SecretRef(NamedTuple):
    """A key of a Secret."""

    name: str
    key: str

    def __str__(self) -> str:
        return f"key {self.key!r} of Secret {self.name!r}"


@dataclass(frozen=True)
class Passwords:
    """The known passwords, and why a reference has none.

    `unread` are the references whose Secret has not been read yet.
    """

    values: dict[SecretRef, str] = field(default_factory=dict, repr=False)
    problems: dict[SecretRef, str] = field(default_factory=dict)
    unread: set[SecretRef] = field(default_factory=set)

    def get(self, ref: SecretRef) -> str:
        """A password. Raises `ValueError` that says why there is none, without the value."""
        value = self.values.get(ref)
        if not value:
            raise ValueError(f"{ref}: {self.problems.get(ref, 'not found')}")
        if len(value.encode()) > MAX_LENGTH:
            raise ValueError(f"{ref}: {len(value.encode())} octets, at most {MAX_LENGTH}")
        return value


def over(known: Passwords, remembered: Mapping[SecretRef, str]) -> Passwords:
    """The known passwords; for a reference not read yet, the value before the restart."""
    silent = {
        ref: value
        for ref, value in remembered.items()
        if ref not in known.values and (ref in known.unread or ref not in known.problems)
    }
    return Passwords({**known.values, **silent}, known.problems, known.unread)


class PasswordSource(Protocol):
    """A source of passwords."""

    @property
    def problem(self) -> str:
        """Why the source cannot be read; empty if it can."""

    def require(self, refs: frozenset[SecretRef]) -> None:
        """Follow exactly these references."""

    def changes(self) -> AsyncIterator[Passwords]:
        """The passwords of the wanted references, at first and after each change; for ever."""


class Wanted:
    """The references that a source of passwords is asked for; `_wake` is set when they change."""

    def __init__(self) -> None:
        self._refs: frozenset[SecretRef] = frozenset()
        self._wake = asyncio.Event()

    def require(self, refs: frozenset[SecretRef]) -> None:
        """Follow exactly these references."""
        if refs != self._refs:
            self._refs = refs
            self._wake.set()


class FilePasswords(Wanted):
    """Passwords in files, `directory/<secret>/<key>`; looked at every `period` seconds."""

    problem = ""

    def __init__(self, directory: Path, period: float = 5.0) -> None:
        super().__init__()
        self._directory, self._period = directory, period

    async def changes(self) -> AsyncIterator[Passwords]:
        """The known passwords, at first and after each change."""
        last: Passwords | None = None
        while True:
            self._wake.clear()
            known = read(self._directory, self._refs)
            if known != last:
                yield known
                last = known
            await set_within(self._wake, self._period)


def read(directory: Path, refs: frozenset[SecretRef]) -> Passwords:
    """The passwords of these references. One trailing newline is no part of a password."""
    known = Passwords()
    for ref in refs:
        file = directory / ref.name / ref.key
        try:
            if {"/", ".."} & {ref.name, ref.key} or "/" in ref.name + ref.key:
                raise ValueError("its name is no file name")
            if file.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
                raise ValueError(f"{file} may be read by others: chmod o-rw")  # PWD-2
            text = file.read_text()
            known.values[ref] = text.removesuffix("\n")
        except FileNotFoundError:
            known.problems[ref] = f"there is no file {file}"
        except UnicodeDecodeError:
            known.problems[ref] = f"{file} is not text"
        except (OSError, ValueError) as error:
            known.problems[ref] = str(error)
    return known
