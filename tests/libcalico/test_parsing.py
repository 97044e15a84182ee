"""One place for addresses and numbers of settings: what is taken, and the one error."""

from __future__ import annotations

import ast
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcalico import parsing
from libcalico.errors import InvalidValue
from libcalico.parsing import Address

ROOT = Path(parsing.__file__).parents[1]
ROOMS = ("bgp", "calicoctl", "cni", "controllers", "felix", "flows", "ipam", "libcalico", "node")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("http://10.0.0.1", Address(False, "10.0.0.1", 2379)),
        ("https://etcd-0.etcd.svc:1", Address(True, "etcd-0.etcd.svc", 1)),
        ("https://[fd00::1]:2380/", Address(True, "fd00::1", 2380)),
        ("http://under_score.", Address(False, "under_score.", 2379)),
    ],
)
def test_endpoints(text: str, found: Address) -> None:
    assert parsing.url("X", text, 2379) == found


def test_a_path_where_one_is_allowed() -> None:
    found = parsing.url("X", "https://h/k8s/clusters/c-1/", path=True)
    assert (found.port, found.path) == (443, "/k8s/clusters/c-1")
    with pytest.raises(InvalidValue, match="behind the port"):
        parsing.url("X", "https://h/k8s")


@pytest.mark.parametrize(
    "read",
    [
        lambda text: parsing.number("X", text, 0, 10),
        lambda text: parsing.port("X", text),
        lambda text: parsing.flag("X", text),
        lambda text: parsing.seconds("X", text),
        lambda text: parsing.url("X", text),
        lambda text: parsing.url("X", f"http://{text}", path=True),
        lambda text: parsing.check_text("X", text),
    ],
)
@given(text=st.text(st.characters(exclude_categories=[])))
def test_there_is_no_other_error(read: Callable[[str], Any], text: str) -> None:
    named: list[str] = []
    try:
        read(text)
    except InvalidValue as error:
        named.append(error.field)
    assert named in ([], ["X"])


@pytest.mark.parametrize("text", ["²", "٣", "1_0", " 1", "+1", "9" * 5000, "", "0x1", "1.0"])
def test_numbers_that_python_or_nobody_takes(text: str) -> None:
    with pytest.raises(InvalidValue, match="a port, 1 to 65535"):
        parsing.port("X", text)


def test_no_other_module_takes_urls_apart() -> None:
    others = []
    for file in (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "urllib.parse":
                others += [file.name for one in node.names if one.name in ("urlsplit", "urlparse")]
    assert others == ["parsing.py"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "a: &a [x, x]\n"
            + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in pairwise(ascii_lowercase)),
            "aliases give more than 100000 values",
        ),
        ("a: &a {b: *a}\n", "contains itself"),
        ("[" * 3000, "nested deeper"),
    ],
)
def test_a_small_file_that_means_something_endless_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parsing.yaml_tree(text)
    assert parsing.yaml_tree("a: &a [1]\nb: [*a, *a]\n") == {"a": [1], "b": [[1], [1]]}


def test_a_proxy_has_a_user_a_password_and_a_port_or_none_of_them() -> None:
    assert parsing.proxy("http://me:s%40crt@10.0.0.1:3128") == parsing.Proxy(
        "10.0.0.1", 3128, "me:s@crt"
    )
    assert parsing.proxy("http://proxy") == parsing.Proxy("proxy", 80)
    assert "s@crt" not in repr(parsing.proxy("http://me:s%40crt@proxy"))
    for text in ("https://proxy", "http://proxy:x", "http://", "socks5://proxy", "proxy:3128"):
        with pytest.raises(ValueError):
            parsing.proxy(text)
