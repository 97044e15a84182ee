"""A strategic merge patch on plain values: what `calicoctl patch` applies for every `--type`.

Objects merge member by member, null removes a member, everything else replaces. Lists of
Calico's kinds carry no merge key, so a list replaces a list; only `metadata.finalizers` and
`metadata.ownerReferences` are united. The directive `$patch: replace|delete|merge` is
understood, the other directives are refused by name. Pure. Source: the Kubernetes API
conventions on strategic merge patch. Tested in `tests/calicoctl/test_patch.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from libcalico.errors import InvalidValue

DIRECTIVE = "$patch"
_UNITED = {("metadata", "finalizers"): "", ("metadata", "ownerReferences"): "uid"}


def merged(
    original: object, patch: Mapping[str, object], path: tuple[str, ...] = ()
) -> dict[str, object]:
    """`original` with the patch laid over it; neither is changed. Raises `InvalidValue`."""
    where = ".".join(path)
    action = patch.get(DIRECTIVE, "merge")
    if action not in ("merge", "replace", "delete"):
        raise InvalidValue(f"{where}.{DIRECTIVE}".lstrip("."), action, "replace, delete or merge")
    if action == "delete":
        return {}
    result: dict[str, object] = {}
    if action == "merge" and isinstance(original, Mapping):
        result = dict(original)
    for name, value in patch.items():
        if name == DIRECTIVE:
            continue
        if name.startswith("$"):
            raise InvalidValue(
                f"{where}.{name}".lstrip("."), value, "this directive of a patch is not served"
            )
        below = (*path, name)
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            result[name] = merged(result.get(name), value, below)
        elif below in _UNITED and isinstance(value, list):
            result[name] = _united(result.get(name), value, _UNITED[below])
        else:
            result[name] = value
    return result


def _united(old: object, new: list[object], key: str) -> list[object]:
    def identity(item: object) -> object:
        return item.get(key) if key and isinstance(item, Mapping) else item

    known = [identity(item) for item in new]
    before = old if isinstance(old, list) else []
    kept = [item for item in before if identity(item) not in known]
    return kept + new
