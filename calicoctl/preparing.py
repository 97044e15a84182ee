"""A resource made ready to be stored: namespace, defaults, and the metadata that it keeps.

Tested in `tests/calicoctl/test_commands.py`.
"""

from __future__ import annotations

from msgspec.structs import replace

from libcalico.errors import InvalidValue, MuslinError
from libcalico.model.base.meta import Metadata, stamp
from libcalico.model.defaults import apply_defaults
from libcalico.model.kinds import KINDS, Resource


def prepare(resource: Resource, namespace: str) -> Resource:
    """The input with namespace, generated name and defaults filled in.

    `namespace` is `-n`, or empty. Raises `MuslinError` when the two do not fit.
    """
    resource = apply_defaults(_with_namespace(resource, namespace))
    if not resource.metadata.name:
        raise InvalidValue("metadata.name", "", "a name is required", resource.kind)
    return resource


def _with_namespace(resource: Resource, namespace: str) -> Resource:
    own = resource.metadata.namespace
    if not KINDS[resource.kind].namespaced:
        if own:
            raise MuslinError(
                "namespace should not be specified for a non-namespaced resource."
                f" {resource.kind} is not a namespaced resource"
            )
        if namespace:
            raise MuslinError(f"{resource.kind} is not namespaced")
        return resource
    if own and namespace and own != namespace:
        raise MuslinError(
            f"resource namespace does not match client namespace. {own} != {namespace}"
        )
    metadata = replace(resource.metadata, namespace=own or namespace or "default")
    return replace(resource, metadata=metadata)


def fresh_resource(resource: Resource) -> Resource:
    """The resource with a uid and creation time of its own."""
    given = resource.metadata
    metadata = Metadata(
        name=given.name,
        namespace=given.namespace,
        labels=given.labels,
        annotations=given.annotations,
    )
    return stamp(replace(resource, metadata=metadata))


def over_stored(resource: Resource, stored: Resource | None) -> Resource:
    """The resource with the metadata of the stored one, but for labels and annotations."""
    if stored is None:
        return fresh_resource(resource)
    metadata = replace(
        stored.metadata,
        labels=resource.metadata.labels,
        annotations=resource.metadata.annotations,
    )
    return replace(resource, metadata=metadata)
