"""The stream of `datastore migrate export`, as Calico writes and reads it.

Three parts, each divided from the next by a line `===`: the resources as YAML lists, one a
kind, each followed by `---`; ClusterInformation as JSON; the records of IPAM as JSON, each
with its key in etcd (docs/reference/data-model.md#calicoctl-datastore-migrate). `render` and
`parse` are inverse, which `tests/calicoctl/test_datastream.py` holds them to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calicoctl import yamltext
from calicoctl.documents import InputDocument, load_text
from calicoctl.output import json_text
from libcalico.datastore.etcd.keys import key_of_path, path_of
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model import ClusterInformation
from libcalico.model.base.base import Struct
from libcalico.model.codec import decode_value, encode_value, resource_from_tree
from libcalico.model.keys import AffinityKey, BlockKey, HandleKey, IPAMConfigKey, Key

DIVIDER = "==="
KINDS_IN_ORDER = (
    "IPPool", "BGPPeer", "Tier", "GlobalNetworkPolicy", "StagedGlobalNetworkPolicy",
    "GlobalNetworkSet", "HostEndpoint", "KubeControllersConfiguration", "NetworkPolicy",
    "StagedNetworkPolicy", "StagedKubernetesNetworkPolicy", "NetworkSet", "Node",
    "BGPConfiguration", "FelixConfiguration", "IPReservation", "BGPFilter",
)  # fmt: skip
"""Tiers before policies, Nodes before what is named after them. No endpoints, no profiles:
the new datastore makes its own."""

IPAM_PARTS: tuple[tuple[str, type[object]], ...] = (
    ("block_affinities", AffinityKey),
    ("blocks", BlockKey),
    ("handles", HandleKey),
)


@dataclass(frozen=True, slots=True)
class Stream:
    """What a stream holds. `ipam` are the records by key, in the order in which to write them."""

    resources: Sequence[InputDocument]
    cluster: ClusterInformation
    ipam: Mapping[Key, Struct]


def render(
    lists: Sequence[Mapping[str, object]], cluster: Mapping[str, object], ipam: Mapping[Key, Struct]
) -> str:
    """The stream of resource lists, the cluster's tree, and the records of IPAM."""
    text = "".join(f"{yamltext.dump(one)}---\n" for one in lists)
    return f"{text}{DIVIDER}\n{json_text(cluster)}\n{DIVIDER}\n{json_text(ipam_tree(ipam))}\n"


def ipam_tree(records: Mapping[Key, Struct]) -> dict[str, object]:
    """The third part: empty parts are left out."""
    tree: dict[str, object] = {}
    for name, kind in IPAM_PARTS:
        pairs = [_pair(key, value) for key, value in records.items() if isinstance(key, kind)]
        if pairs:
            tree[name] = pairs
    if IPAMConfigKey() in records:
        tree["config"] = _pair(IPAMConfigKey(), records[IPAMConfigKey()])
    return tree


def _pair(key: Key, value: Struct) -> dict[str, object]:
    return {"Key": path_of(key), "Value": json.loads(encode_value(key, value)), "TTL": 0}


def parse(text: str, source: str) -> Stream:
    """The parts of a stream; raises `MuslinError` or InvalidValue saying which part is wrong."""
    parts: list[list[str]] = [[]]
    for line in text.splitlines(keepends=True):
        if line.rstrip("\r\n") == DIVIDER:
            parts.append([])
        else:
            parts[-1].append(line)
    if len(parts) != 3:
        raise MuslinError(
            f"{source} is no export of a datastore: it has {len(parts)} part(s) divided by"
            f" '{DIVIDER}' instead of 3; make it anew with `calicoctl datastore migrate export`"
        )
    resources, cluster, ipam = ("".join(part) for part in parts)
    information = resource_from_tree(_json(cluster, "the cluster information", source))
    if not isinstance(information, ClusterInformation):
        raise InvalidValue(
            "kind", information.kind, "the second part is ClusterInformation", source
        )
    return Stream(load_text(resources, source), information, _records(ipam, source))


def _json(text: str, what: str, source: str) -> dict[str, object]:
    try:
        tree = json.loads(text, object_pairs_hook=_unique)
    except ValueError as error:
        raise MuslinError(f"{source}: {what} is no JSON: {error}") from None
    if not isinstance(tree, dict):
        raise MuslinError(f"{source}: {what} must be a JSON object")
    return tree


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return members


def _records(text: str, source: str) -> dict[Key, Struct]:
    tree = _json(text, "the part of IPAM", source)
    known = {name for name, _ in IPAM_PARTS} | {"config"}
    if unknown := sorted(set(tree) - known):
        raise InvalidValue(unknown[0], "", "is none of " + ", ".join(sorted(known)), source)
    records: dict[Key, Struct] = {}
    parts: tuple[tuple[str, type[object]], ...] = (*IPAM_PARTS, ("config", IPAMConfigKey))
    for name, kind in parts:
        pairs = tree.get(name) or []
        for index, pair in enumerate(pairs if isinstance(pairs, list) else [pairs]):
            where = f"{name}[{index}]" if name != "config" else name
            path = pair.get("Key") if isinstance(pair, dict) else None
            key = key_of_path(path) if isinstance(path, str) else None
            if key is None or not isinstance(key, kind) or "Value" not in pair:
                raise InvalidValue(f"{where}.Key", path, f"names none of {name}", source)
            try:
                records[key] = decode_value(key, json.dumps(pair["Value"]).encode())
            except InvalidValue as error:
                raise InvalidValue(
                    f"{where}.Value.{error.field}", error.value, error.rule, source
                ) from None
    return records
