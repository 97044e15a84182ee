"""The names of resources, nodes and namespaces, for a shell that completes them.

Asked of the datastore that the words before name (`-c`, `--context`), else of the usual one. A
shell waits for the answer at every key, so it is bounded in time, and what goes wrong is no
answer: nothing is told. Tested in `tests/calicoctl/test_completing_names.py`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import click
from click.shell_completion import CompletionItem

from calicoctl import aliases, session
from libcalico.datastore.interface import Selection
from libcalico.errors import MuslinError
from libcalico.model.kinds import KINDS
from libcalico.process import unlooped

SECONDS = 1.5
"""A shell that waits longer seems to hang."""
NAMESPACES = "kns."
"""How the profiles begin that stand for namespaces, in both datastores."""

T = TypeVar("T")


class _Late(BaseException):
    """The time is up. No Exception, so that nothing on the way takes it for a failure to repeat."""


def of_resources(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Names of the kind that the words before the name say, but those that stand there already."""
    try:
        kind = aliases.kind_of(str(context.params.get("kind") or ""))
    except MuslinError:
        return []
    namespace = str(context.params.get("namespace") or "default") if KINDS[kind].namespaced else ""
    given = context.params.get("names") or ()
    names = _names(context, kind, namespace)
    return _items((name for name in names if name not in given), incomplete)


def of_nodes(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Names of nodes."""
    return _items(_names(context, "Node"), incomplete)


def of_pools(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Names of pools."""
    return _items(_names(context, "IPPool"), incomplete)


def of_namespaces(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """Names of namespaces."""
    profiles = _names(context, "Profile")
    names = (one.removeprefix(NAMESPACES) for one in profiles if one.startswith(NAMESPACES))
    return _items(names, incomplete)


def of_styles(context: click.Context, incomplete: str) -> list[CompletionItem]:
    """The shapes of `get -o`; those with a value end in `=`."""
    from calicoctl.listing import styles

    names = [f"{one}=" if one in styles.WITH_VALUE else one for one in styles.NAMES]
    return _items(names, incomplete)


def _items(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _names(context: click.Context, kind: str, namespace: str = "") -> list[str]:
    before = context.find_root().params
    options = session.Options(
        context.params.get("config") or before.get("config"),
        allow_version_mismatch=True,
        context=str(context.params.get("context") or before.get("context") or ""),
    )

    async def ask() -> list[str]:
        async with session.datastore(options, gate=False, quiet=True) as store:
            listing = await store.list(Selection(kind, namespace=namespace))
            return [str(entry.value.metadata.name) for entry in listing.entries if entry.value]

    return within(SECONDS, lambda: unlooped.run(ask()), [])


def within(seconds: float, work: Callable[[], T], otherwise: T) -> T:
    """The result of `work`, or `otherwise` when the time is up or it fails."""
    try:
        with _bounded(seconds):
            return work()
    except (_Late, MuslinError, OSError):
        return otherwise


@contextmanager
def _bounded(seconds: float) -> Iterator[None]:
    def stop(_signal: int, _frame: object) -> None:
        raise _Late

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
