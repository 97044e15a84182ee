"""API objects as entries, also where they cannot be understood.

Tested in tests/libcalico/test_kubernetes_objects.py and tests/apiserver/test_kdd_store.py.
"""

from __future__ import annotations

from libcalico.datastore.etcd import entries
from libcalico.datastore.interface import Entry, Selection
from libcalico.datastore.kubernetes.mapping import Mapping, encoded, version
from libcalico.datastore.kubernetes.metadata import Tree
from libcalico.errors import NO_DOCUMENT, InvalidValue
from libcalico.model.keys import AffinityKey, Key, ResourceKey
from libcalico.model.salvage import salvage

_STRANGE = (*NO_DOCUMENT, ValueError, TypeError, KeyError, AttributeError)


def entry_of(
    mapping: Mapping, key: Key, tree: Tree, *, raw: bool = False
) -> tuple[Entry | None, str]:
    """The entry, None where the object counts as gone; and why it could not be decoded.

    A policy that cannot be decoded still stands for what it closes. `raw`: do not decode.
    """
    revision = version(tree)
    try:
        document = mapping.raw(key, tree)
    except (InvalidValue, *_STRANGE) as problem:
        text = encoded(tree)
        value = salvage(key, b"{}")
        reason = str(problem)
        return (None if value is None else Entry(key, value, revision, text, reason)), reason
    if document is None:
        return None, ""
    if raw:
        return Entry(key, None, revision, document), ""
    return entries.entry_of(key, document, revision)


def selected(selection: Selection, key: Key) -> bool:
    """Whether an object of the family belongs to a selection."""
    if isinstance(key, ResourceKey):
        if selection.host and key.kind == "Node" and key.name != selection.host:
            return False
        return key.name.startswith(selection.name_prefix) and (
            not selection.namespace or not key.namespace or key.namespace == selection.namespace
        )
    if isinstance(key, AffinityKey) and selection.host:
        return key.kind == "host" and key.host == selection.host
    return True
