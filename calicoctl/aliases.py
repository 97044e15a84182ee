"""What the operator may call a kind: the model's names and aliases, in any letter case.

Kinds that Calico keeps to itself are refused by their own name, with the command that shows
what they hold. Tested in `tests/calicoctl/test_kinds.py`.
"""

from __future__ import annotations

from libcalico.errors import UnsupportedKind
from libcalico.model.kinds import KINDS, kind_named

SERVED = tuple(sorted(kind.name for kind in KINDS.values() if not kind.internal))
"""The kinds that the command line reads and writes."""

READ_ONLY = frozenset({"ClusterInformation"})
"""Kinds that the system itself writes; the command line only shows them."""

ELSEWHERE = {
    "blockaffinity": ("BlockAffinity", "calicoctl ipam show --show-blocks"),
    "ipamblock": ("IPAMBlock", "calicoctl ipam show --show-blocks"),
    "ipamhandle": ("IPAMHandle", "calicoctl ipam check --show-all-ips"),
    "livemigration": ("LiveMigration", ""),
}
"""Kinds of the API group that are no resources of the command line, and what shows them."""


def plurals() -> list[str]:
    """The plural of every kind that is served: what completion offers."""
    return [KINDS[name].plural for name in SERVED]


_KUBERNETES = {
    "pod": "kubectl shows pods; workloadendpoints are theirs",
    "namespace": "kubectl shows namespaces; profiles are theirs",
    "serviceaccount": "kubectl shows service accounts; profiles are theirs",
    "service": "kubectl shows services",
}
"""Kinds of Kubernetes that are asked for here, and what to ask instead."""


def _instead(text: str, plural: bool) -> str:
    """Where to look instead: the kinds that are near, or all of them."""
    if "," in text or text.lower() == "all":
        return ": one kind at a time"
    other = _KUBERNETES.get(text.lower().removesuffix("s"))
    if other:
        return f": {other}"
    from calicoctl.terminal import suggesting

    words = (word for name in SERVED for word in (KINDS[name].plural, name, *KINDS[name].aliases))
    kinds = dict.fromkeys(
        kind_named(word).plural if plural else kind_named(word).name
        for word in suggesting.of_kind(text, words)
    )
    if kinds:
        return f". {suggesting.question(kinds)}"
    return f"; supported: {', '.join(SERVED)}"


def kind_of(text: str, *, plural: bool = True) -> str:
    """The kind that `text` names (`IPP`, `pools`, `IPPool` all mean `IPPool`).

    `plural`: what is suggested is spelled as on the command line, not as in a document.

    Raises `UnsupportedKind`: for a kind of Calico's own by that kind's name, for anything
    else with the kinds that are near, or with the list of what is served.
    """
    word = text.lower()
    for name, (kind, command) in ELSEWHERE.items():
        if word in (name, name + "s", name.removesuffix("y") + "ies"):
            hint = f"; {command} shows what it holds" if command else ""
            raise UnsupportedKind(f"resource type '{kind}' is internal to Calico{hint}")
    try:
        kind_row = kind_named(text)
    except UnsupportedKind:
        kind_row = None
    if kind_row is None or kind_row.internal:
        raise UnsupportedKind(f"resource type '{text}' is not supported{_instead(text, plural)}")
    return kind_row.name
