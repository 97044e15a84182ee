"""Every kind, written by one `calicoctl` and read, shown and replaced by the other.

The documents are those of tests/libcalico/golden, which hold every field. Those that only a
newer Calico knows are told apart below; that v3.32 refuses them is checked as well.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from libcalico.model import KINDS
from tests.calicoctl.conftest import Ctl
from tests.interop.conftest import Theirs
from tests.interop.stored import comparable, put_tiers
from tests.libcalico.golden_data import Golden, documents
from tests.support.etcd import Etcd

DOCUMENTS = [one for one in documents() if one.name in KINDS]
INTERNAL = {"BlockAffinity", "LiveMigration"}
NEWER = {"CalicoNodeStatus", "IPAMConfiguration"}
"""v3.32's `calicoctl` has no commands for these; ours has, as the release after it."""

NEVER_WRITTEN = {"ClusterInformation"}
NEWER_FIELDS = ("FelixConfiguration rack-1", "KubeControllersConfiguration default")
"""Documents with fields that came after v3.32.1."""

_EMPTY_SIDE = re.compile(rb',"(source|destination)":\{\}')


def name_of(golden: Golden) -> str:
    return golden.key.rpartition("/")[2]


def ids(golden: Golden) -> str:
    return f"{golden.name}-{name_of(golden)}"


def where(golden: Golden) -> list[str]:
    return ["-n", golden.key.split("/")[-2]] if KINDS[golden.name].namespaced else []


def without_empty_sides(raw: bytes | None) -> bytes | None:
    """v3.32 stores a rule's empty `source` and `destination`, releases after it do not."""
    return None if raw is None else _EMPTY_SIDE.sub(b"", raw)


def same(left: bytes | None, right: bytes | None) -> bool:
    return without_empty_sides(comparable(left)) == without_empty_sides(comparable(right))


@pytest.mark.interop
@pytest.mark.parametrize("golden", DOCUMENTS, ids=ids)
def test_both_store_the_same_bytes_or_both_refuse(
    golden: Golden, ours: Ctl, theirs: Theirs, etcd: Etcd
) -> None:
    found = []
    for calicoctl in (theirs, ours):
        etcd.delete("")
        put_tiers(etcd)
        etcd.ctl("del", golden.key)
        done = calicoctl("create", "-f", "-", stdin=golden.raw.decode())
        found.append((done.code, etcd.get(golden.key)))
    (their_code, their_bytes), (our_code, our_bytes) = found
    newer = golden.name in NEWER or f"{golden.name} {name_of(golden)}" in NEWER_FIELDS
    if newer and their_code:
        pytest.skip("v3.32 does not know it")
    if golden.name == "Tier" and their_code:
        pytest.skip("v3.32 refuses the status of a tier that an API server wrote")
    assert our_code == their_code
    if golden.name not in NEVER_WRITTEN:
        assert same(our_bytes, their_bytes), (our_bytes, their_bytes)


@pytest.mark.interop
@pytest.mark.parametrize("golden", DOCUMENTS, ids=ids)
def test_one_replaces_what_the_other_created_and_nothing_changes(
    golden: Golden, ours: Ctl, theirs: Theirs, etcd: Etcd
) -> None:
    if golden.name in INTERNAL | NEVER_WRITTEN:
        pytest.skip("not written by any command")
    for writer, other in ((theirs, ours), (ours, theirs)):
        if other is theirs and f"{golden.name} {name_of(golden)}" in NEWER_FIELDS:
            continue  # what v3.32.1 does not know it drops
        etcd.delete("")
        put_tiers(etcd)
        etcd.ctl("del", golden.key)
        if writer("create", "-f", "-", stdin=golden.raw.decode()).code:
            continue
        before = etcd.get(golden.key)
        shown = other("get", golden.name, name_of(golden), *where(golden), "-o", "yaml")
        if shown.code and golden.name in NEWER:
            continue
        assert shown.code == 0, shown.err
        done = other("replace", "-f", "-", stdin=shown.out)
        if done.code and golden.name == "Tier" and other is theirs:
            continue
        if "not recognized" in done.err and other is theirs:
            continue
        assert done.code == 0, done.err
        after = etcd.get(golden.key)
        assert without_empty_sides(after) == without_empty_sides(before)


# Where v3.32.1 ends with a panic of its template library, ours prints the table.
PANICS = "ApplyInjectionDetection"


@pytest.mark.interop
@pytest.mark.parametrize("kind", sorted(set(KINDS) - INTERNAL - NEWER))
@pytest.mark.parametrize("style", ["ps", "wide", "yaml", "json"])
def test_get_prints_the_same(kind: str, style: str, ours: Ctl, theirs: Theirs, etcd: Etcd) -> None:
    mine = [one for one in DOCUMENTS if one.name == kind]
    for one in mine:
        etcd.put(one.key, one.raw)
    asked = [["get", kind, "-o", style]]
    if KINDS[kind].namespaced:
        asked.append(["get", kind, "-o", style, "-A"])
    for one in mine:
        asked.append(["get", kind, name_of(one), *where(one), "-o", style])
        if style in ("yaml", "json"):
            asked.append([*asked[-1], "--export"])
    for arguments in asked:
        they, we = theirs(*arguments), ours(*arguments)
        if PANICS in they.err:
            assert we.code == 0
            continue
        assert we.code == they.code, (arguments, we.err, they.err)
        if kind in ("FelixConfiguration", "KubeControllersConfiguration") and style in (
            "yaml",
            "json",
        ):
            assert _holds(_parsed(we.out, style), _parsed(they.out, style)), arguments
        else:
            assert we.out == they.out, arguments


def _parsed(text: str, style: str) -> Any:
    import yaml

    return json.loads(text) if style == "json" else yaml.safe_load(text)


def _holds(more: Any, less: Any) -> bool:
    """Whether `more` is `less` with further members: the fields that are newer than v3.32.1."""
    if isinstance(less, dict):
        return isinstance(more, dict) and all(
            key in more and _holds(more[key], value) for key, value in less.items()
        )
    if isinstance(less, list):
        return isinstance(more, list) and len(more) == len(less) and all(map(_holds, more, less))
    return bool(more == less)
