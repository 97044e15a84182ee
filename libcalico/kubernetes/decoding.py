"""What the API answers, decoded: objects, pages of lists, events of watches.

Bytes that are none of these are Unreachable: something else than the API answered. One
object that cannot be decoded is named, and does not stop the others.
Tested in tests/libcalico/test_kubernetes_wire.py and tests/apiserver/test_client.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from libcalico.kubernetes.errors import UNREADABLE, Status, Unreachable, of_status
from libcalico.kubernetes.names import Name
from libcalico.kubernetes.objects import Object, Resource

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class Query:
    """Which objects of a kind: a namespace, and selectors as the API spells them."""

    namespace: str = ""
    fields: str = ""
    labels: str = ""

    def parameters(self) -> dict[str, str]:
        """The selectors as query parameters."""
        both = {"fieldSelector": self.fields, "labelSelector": self.labels}
        return {name: text for name, text in both.items() if text}


EVERYTHING = Query()
NAMELESS = Name("", "?")
"""Stands for an object of a list whose name cannot be read."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some objects at one `revision`; `token` leads to the next page, empty at the end.

    `broken` holds those that could not be decoded, and why.
    """

    items: list[T]
    broken: dict[Name, str]
    revision: str
    token: str


@dataclass(frozen=True, slots=True)
class Event(Generic[T]):
    """One change. `value` None is a deletion, or an object that cannot be decoded (see `broken`).

    `name` None is a bookmark: nothing changed up to `revision`.
    """

    name: Name | None
    value: T | None
    revision: str
    broken: str = ""


class _ListMeta(msgspec.Struct, rename={"token": "continue"}):
    resourceVersion: str = ""
    token: str = ""


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Head(Object, kw_only=True):
    pass


def decode_object(resource: Resource[T], raw: bytes) -> T:
    """One object."""
    try:
        return msgspec.json.decode(raw, type=resource.type)
    except UNREADABLE as problem:
        raise Unreachable(f"the answer is none of {resource.plural}: {problem}") from None


def decode_page(resource: Resource[T], raw: bytes) -> Page[T]:
    """One page of a list."""
    try:
        listing = msgspec.json.decode(raw, type=_List)
    except UNREADABLE as problem:
        raise Unreachable(f"the list of {resource.plural} is none: {problem}") from None
    items: list[T] = []
    broken: dict[Name, str] = {}
    for each in listing.items or ():
        try:
            items.append(msgspec.json.decode(each, type=resource.type))
        except UNREADABLE as problem:
            broken[_name_of(each)] = str(problem)
    return Page(items, broken, listing.metadata.resourceVersion, listing.metadata.token)


def _name_of(raw: msgspec.Raw) -> Name:
    try:
        return msgspec.json.decode(raw, type=_Head).name
    except UNREADABLE:
        return NAMELESS


def decode_event(resource: Resource[T], tried: str, line: bytes) -> Event[T]:
    """One line of a watch. Raises the error that the line reports, such as Gone."""
    try:
        event = msgspec.json.decode(line, type=_Event)
        if event.type == "ERROR":
            error = of_status(tried, _code(event.object), bytes(event.object))
            # An error in the stream comes when it is too late for another status line.
            raise error
        head = msgspec.json.decode(event.object, type=_Head)
    except UNREADABLE as problem:
        raise Unreachable(f"{tried}: an event is none: {problem}") from None
    revision = head.metadata.resourceVersion
    match event.type:
        case "BOOKMARK":
            return Event(None, None, revision)
        case "DELETED":
            return Event(head.name, None, revision)
    try:
        value = msgspec.json.decode(event.object, type=resource.type)
    except UNREADABLE as problem:
        return Event(head.name, None, revision, str(problem))
    return Event(head.name, value, revision)


def _code(raw: msgspec.Raw) -> int:
    return msgspec.json.decode(raw, type=Status).code
