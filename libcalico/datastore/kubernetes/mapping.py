"""What a store of API objects knows of one collection: which objects of ours it holds, and how.

A collection of the API (`ippools`, `pods`) holds objects of one family of ours, at most one each.
`Stored` ones are written whole; of `Patched` ones a few annotations are ours; the others are
Kubernetes' own and only read.
Tested in tests/libcalico/test_kubernetes_objects.py and tests/apiserver/test_kdd_store.py.
"""

from __future__ import annotations

from collections.abc import Mapping as Map
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from libcalico.datastore.interface import Change, Entry, Put, Selection
from libcalico.datastore.kubernetes.metadata import Tree
from libcalico.kubernetes.protobuf import Fields
from libcalico.model.keys import Key

if TYPE_CHECKING:
    from libcalico.kubernetes.client import Client


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection of the API. `optional`: a cluster without it has none of its objects.

    `status`: the kind has the subresource `status`, which is written separately.
    `fields`: those that are read of its objects, where lists and watches are asked for in protobuf.
    """

    group_version: str
    plural: str
    kind: str
    namespaced: bool = False
    optional: bool = False
    status: bool = False
    fields: Fields | None = None

    def path(self, namespace: str = "", name: str = "", part: str = "") -> str:
        """The path of one object, or of all (of a namespace); `part` is such as `status`."""
        words = ["/apis" if "/" in self.group_version else "/api", self.group_version]
        if namespace and self.namespaced:
            words += ["namespaces", namespace]
        return "/".join([*words, self.plural, *filter(None, (name, part))])


@dataclass(frozen=True, slots=True)
class Place:
    """Where the API has an object."""

    name: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request for a selection asks the API for: a namespace, and selectors.

    `brief`: the metadata of the objects is enough.
    """

    namespace: str = ""
    parameters: Map[str, str] = field(default_factory=dict)
    brief: bool = False


class Mapping(Protocol):
    """One collection that is read."""

    @property
    def collection(self) -> Collection:
        """The collection."""

    def place(self, key: Key) -> Place | None:
        """The place of an object; None where this collection never has it."""

    def key(self, tree: Tree) -> Key | None:
        """The key of an API object; None where it is no object of ours."""

    def raw(self, key: Key, tree: Tree) -> bytes | None:
        """The bytes of its value, as etcd would hold them; None while it is being deleted.

        Raises InvalidValue where the object has no value; `UNREADABLE` stands for it then.
        """

    def asked(self, selection: Selection) -> Asked:
        """The request for a selection. The answer may hold more objects than were selected."""


@runtime_checkable
class Stored(Mapping, Protocol):
    """A mapping whose objects are written whole."""

    def body(self, put: Put, before: Tree | None) -> Tree:
        """The API object that holds the new value, without a resourceVersion."""

    @property
    def two_phases(self) -> bool:
        """Whether an object is marked as deleted before it is deleted (IPAM)."""


@runtime_checkable
class Patched(Mapping, Protocol):
    """A mapping whose objects belong to Kubernetes, but for some annotations."""

    def annotations(self, change: Change, before: Tree) -> dict[str, str | None]:
        """The annotations to change. Raises DatastoreError for a change that cannot be made."""

    def stands(self, change: Change, seen: Entry | None, before: Tree) -> bool:
        """Whether the guard of a change holds although its revision is another.

        `seen` is the entry of the guard's revision, where it is remembered.
        """

    def absent(self, change: Change) -> Exception | None:
        """The error for a write to an object that does not exist; None: it needs no write."""


@runtime_checkable
class OfNodes(Mapping, Protocol):
    """A mapping some of whose objects depend on the cluster's nodes."""

    def lacks_nodes(self, trees: Sequence[Tree]) -> bool:
        """Whether nodes must be read before these are converted."""

    async def read_nodes(self, client: Client) -> None:
        """Read the nodes. Raises KubernetesError."""


def metadata(tree: Tree) -> Tree:
    """The metadata of an API object."""
    meta = tree.get("metadata")
    return meta if isinstance(meta, dict) else {}


def version(tree: Tree) -> int:
    """The resourceVersion as a number; these numbers only grow (KEP-5504)."""
    text = str(metadata(tree).get("resourceVersion", ""))
    return int(text) if text.isdecimal() else 0


def encoded(tree: object) -> bytes:
    """A tree as JSON."""
    return msgspec.json.encode(tree)
