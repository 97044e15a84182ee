"""The definitions as files: current, and named as the kinds of the model are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from libcalico.crds import cel
from libcalico.crds.__main__ import main
from libcalico.crds.document import files
from libcalico.crds.schema import FIELDS, schema_of
from libcalico.crds.table import DEFINITIONS
from libcalico.model.kinds import KINDS

FOLDER = Path(__file__).parents[2] / "manifests" / "crds"
NATIVE = {"Node", "WorkloadEndpoint", "Profile", "LiveMigration"}
"""Kubernetes' own objects stand for them, or nobody stores them there."""


def test_the_files_are_what_the_types_say() -> None:
    for name, text in files().items():
        assert (FOLDER / name).read_text() == text, name
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    assert sorted(kustomization["resources"]) == sorted(files())


def test_check_names_the_file_that_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([]) == 0
    assert main(["--check"]) == 0
    changed = tmp_path / "manifests/crds/crd.projectcalico.org_tiers.yaml"
    changed.write_text(changed.read_text() + "#\n")
    assert main(["--check"]) == 1
    assert str(changed.name) in capsys.readouterr().err


def test_every_kind_has_its_definition_with_its_names_and_scope() -> None:
    definitions = {one.kind: one for one in DEFINITIONS}
    for name, kind in KINDS.items():
        if name in NATIVE or name == "IPAMConfiguration":
            continue
        assert (definitions[name].plural, definitions[name].namespaced) == (
            kind.plural,
            kind.namespaced,
        )
    assert set(definitions) - set(KINDS) == {
        "IPAMBlock",
        "IPAMHandle",
        "IPAMConfig",
        "ClusterNetworkPolicy",
    }
    namespaced = {one.plural for one in DEFINITIONS if one.namespaced}
    assert namespaced == {
        "networkpolicies",
        "networksets",
        "stagednetworkpolicies",
        "stagedkubernetesnetworkpolicies",
    }


def test_every_rule_stands_in_some_definition() -> None:
    said = [rule for text in files().values() for rule in _rules(yaml.safe_load(text))]
    for rules in cel.RULES.values():
        assert all(rule.text in said for rule in rules)


def _rules(tree: Any) -> list[str]:
    if isinstance(tree, list):
        return [rule for one in tree for rule in _rules(one)]
    if not isinstance(tree, dict):
        return []
    own = [tree["rule"]] if isinstance(tree.get("rule"), str) else []
    return own + [rule for one in tree.values() for rule in _rules(one)]


def test_a_field_that_no_struct_has_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from libcalico.model.resources.pool import IPPoolSpec

    monkeypatch.setitem(FIELDS, IPPoolSpec, {"cidrs": {}})
    with pytest.raises(TypeError, match="has no fields"):
        schema_of(IPPoolSpec)
