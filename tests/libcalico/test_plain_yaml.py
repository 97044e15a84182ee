"""What the plain reader of kubeconfigs reads is what the whole reader reads (PLY-1)."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from libcalico import parsing
from libcalico.kubernetes import plain_yaml
from tests.size import examples

KUBECTL = b"""\
apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==
    server: https://10.0.0.1:6443
  name: kubernetes
contexts:
- context:
    cluster: kubernetes
    user: kubernetes-admin
  name: kubernetes-admin@kubernetes
current-context: kubernetes-admin@kubernetes
kind: Config
preferences: {}
users:
- name: kubernetes-admin
  user:
    client-certificate-data: LS0tLS1CRUdJTi==
    client-key-data: "1234"
    token:
"""


@pytest.mark.parametrize("text", [KUBECTL, KUBECTL.rstrip(b"\n"), b"a: true\nb: false\nc: []\n"])
def test_what_tools_write_is_read(text: bytes) -> None:
    found = plain_yaml.read(text)
    assert found is not None
    assert found == parsing.yaml_tree(text)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"a", b"- a: b\n", b"a: b # c\n", b"a: 'b'\n", b'a: "b\\n"\n', b"a: 12\n",
        b"a: 0x1f\n", b"a: 1:30\n", b"a: 2026-01-01\n", b"a: yes\n", b"off: b\n",
        b"a: ~\n", b"a: True\n", b"a: {b: c}\n", b"a: &b c\n", b"a: |\n  b\n", b"---\na: b\n",
        b"a: b\na: c\n", b"a:\n  b: c\n d: e\n", b"a: b\n  c: d\n", b"a: b c\n", b"a: b: c\n",
        b"true: b\n", b"a:\n- b\n", b"a:\r\n", b"a:\tb\n", "a: \u00e4\n".encode(),
        b"a:\n- - b: c\n",
        b"a: 1e3\n", b"a: .5\n", b"a: b:\n", b"a:\n  - b: c\n    d: e\n   f: g\n", b"\xff",
    ],
)  # fmt: skip
def test_anything_else_is_left_to_the_whole_reader(text: bytes) -> None:
    found = plain_yaml.read(text)
    if found is not None:
        assert found == parsing.yaml_tree(text)


WORDS = st.sampled_from(
    ["a", "b-c", "https://[::1]:6443", "x:y", "LS0=", "12", "1e5", "true", "null", "", "no", "a b"]
)
SCALARS = WORDS | st.booleans() | st.none() | st.integers(0, 20)
KEYS = st.sampled_from(["a", "b", "name", "user", "as-groups", "true", "1", "no"])
TREES = st.recursive(
    SCALARS,
    lambda inner: st.dictionaries(KEYS, inner, max_size=3) | st.lists(inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=examples(600))
@given(st.dictionaries(KEYS, TREES, min_size=1, max_size=4))
def test_of_any_tree_the_same_is_read_or_nothing(tree: dict[str, Any]) -> None:
    raw = yaml.safe_dump(tree).encode()
    found = plain_yaml.read(raw)
    assert found is None or found == parsing.yaml_tree(raw)


LINES = st.lists(
    st.builds(
        lambda blanks, dash, key, value: " " * blanks + dash + key + value,
        st.integers(0, 5),
        st.sampled_from(["", "", "- ", "- - "]),
        st.sampled_from(["a:", "b:", "c-d:", "", "x"]),
        st.sampled_from(["", " v", " {}", " true", ' "q"', " a:b", "  v", " 0o7", " 1_0", " 0x1"]),
    ),
    max_size=8,
)


@settings(max_examples=examples(1500))
@given(LINES)
def test_of_any_lines_the_same_is_read_or_nothing(lines: list[str]) -> None:
    raw = "\n".join(lines).encode()
    found = plain_yaml.read(raw)
    assert found is None or found == parsing.yaml_tree(raw)
