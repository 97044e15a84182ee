"""Options of `calicoctl flows` as filters of the aggregator. Pure.

A name matches where it is contained, because flows carry aggregated names (`web-7d4b9-*`); a
namespace matches exactly. A namespace of either end cannot be said by one filter, so a question is
one filter or two, and a flow is wanted that any of them lets through.

Tested in tests/calicoctl/test_seen_wanted.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from flows.aggregate.matching import matches
from flows.query import Filter, PolicyMatch, Text
from flows.record import NONE, PRIVATE, PUBLIC, Action, Key, Reporter
from libcalico import durations
from libcalico.errors import InvalidValue

VERDICTS = {"allow": Action.ALLOW, "deny": Action.DENY}
REPORTERS = {"src": Reporter.SOURCE, "dst": Reporter.DESTINATION}
BEYOND = {"public": PUBLIC, "private": PRIVATE}


@dataclass(frozen=True, slots=True)
class Choice:
    """The options as they were typed, empty or 0 where they were not."""

    source: str = ""
    destination: str = ""
    namespace: str = ""
    verdict: str = ""
    policy: str = ""
    protocol: str = ""
    port: int = 0
    reporter: str = ""


def filters_of(choice: Choice) -> tuple[Filter, ...]:
    """One filter, or two with `namespace`. Raises InvalidValue naming the option."""
    source_namespaces, source_names = end(choice.source, "--from")
    namespaces, names = end(choice.destination, "--to")
    if not 0 <= choice.port <= 65535:
        raise InvalidValue("--port", choice.port, "1 to 65535")
    chosen = Filter(
        source_names=source_names,
        source_namespaces=source_namespaces,
        destination_names=names,
        destination_namespaces=namespaces,
        protocols=(Text(choice.protocol.lower()),) if choice.protocol else (),
        ports=(choice.port,) if choice.port else (),
        actions=(VERDICTS[choice.verdict],) if choice.verdict else (),
        policies=(policy(choice.policy),) if choice.policy else (),
        reporter=REPORTERS[choice.reporter] if choice.reporter else Reporter.UNSPECIFIED,
    )
    if not choice.namespace:
        return (chosen,)
    either = (Text(choice.namespace),)
    alternatives = []
    if source_namespaces in ((), either):
        alternatives.append(replace(chosen, source_namespaces=either))
    if namespaces in ((), either):
        alternatives.append(replace(chosen, destination_namespaces=either))
    if not alternatives:
        rule = "one of the namespaces of --from and --to, or neither of these with a namespace"
        raise InvalidValue("--namespace", choice.namespace, rule)
    return tuple(alternatives)


def end(text: str, option: str) -> tuple[tuple[Text, ...], tuple[Text, ...]]:
    """Namespaces and names of `NAMESPACE/NAME`, `NAMESPACE/`, `NAME`, `public` or `private`.

    `-/NAME` is an end without a namespace. Raises InvalidValue with more than one slash.
    """
    if not text:
        return (), ()
    if text in BEYOND:
        return (), (Text(BEYOND[text]),)
    namespace, slash, name = text.rpartition("/")
    if "/" in namespace or (slash and not namespace):
        rule = f"NAMESPACE/NAME, NAMESPACE/, NAME, {NONE}/NAME, public or private"
        raise InvalidValue(option, text, rule)
    names = (Text(name, fuzzy=True),) if name else ()
    return ((Text(namespace),) if slash else ()), names


def policy(text: str) -> PolicyMatch:
    """The match of `NAMESPACE/NAME`, `NAMESPACE/` or `NAME` (of any namespace)."""
    namespace, _, name = text.rpartition("/")
    if "/" in namespace:
        raise InvalidValue("--policy", text, "NAMESPACE/NAME, NAMESPACE/ or NAME")
    return PolicyMatch(namespace=Text(namespace), name=Text(name, fuzzy=True))


def lets_through(filters: tuple[Filter, ...], key: Key) -> bool:
    """Whether any of the filters lets the key through."""
    return any(matches(one, key) for one in filters)


def seconds_ago(text: str) -> int:
    """The negative seconds of `15m`, as the aggregator takes them. Raises InvalidValue."""
    try:
        seconds = durations.parse(text)
    except ValueError as error:
        raise InvalidValue("--since", text, str(error)) from None
    if not 1 <= seconds <= 3600:
        raise InvalidValue("--since", text, "1s to 1h: the aggregator keeps one hour")
    return -int(seconds)
