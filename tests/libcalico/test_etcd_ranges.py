"""Parts of a large range: all keys once, in order, and little to count for etcd."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcalico.datastore.etcd.ranges import Parts

FIRST, END = b"/w/", b"/w0"
COUNT, PAGE = 20_000, 200


def read(keys: list[bytes], page: int) -> tuple[int, int]:
    """Read sorted keys as from etcd; how many requests that took, and how many keys it walked."""
    parts, found, requests, walked = Parts(FIRST, END, page), [], 0, 0
    more = True
    while more:
        first, end = parts.span
        assert FIRST <= first < end <= END
        start, stop = bisect_left(keys, first), bisect_left(keys, end)
        answer = keys[start : min(stop, start + page)]
        found += answer
        requests, walked = requests + 1, walked + stop - start
        more = parts.answer(answer, stop - start, more=stop - start > page)
    assert found == keys
    return requests, walked


names = st.binary(min_size=1, max_size=4).map(lambda name: FIRST + name)
words = st.text("ab/-1\xff", min_size=1, max_size=9).map(lambda name: FIRST + name.encode())


@given(st.sets(st.one_of(names, words), max_size=80), st.integers(1, 6))
def test_every_key_is_read_once_in_order(keys: set[bytes], page: int) -> None:
    read(sorted(keys), page)


SHAPES: dict[str, Callable[[int], str]] = {
    "hundred namespaces": lambda n: f"ns{n % 100}/node--{n % 400}-k8s-web--{n}-eth0",
    "one namespace": lambda n: f"default/node--{n % 400}-k8s-web--{n}-eth0",
    "a namespace a pod": lambda n: f"team-{n * 7919}/pod",
    "random names": lambda n: f"ns{n % 7}/{n * 2654435761 % 2**32:08x}",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_etcd_walks_few_keys_more_than_it_returns(shape: str) -> None:
    keys = sorted(FIRST + SHAPES[shape](number).encode() for number in range(COUNT))
    requests, walked = read(keys, PAGE)
    least = COUNT // PAGE
    assert requests <= 5 * least
    # Every page to the end of the range would be half of COUNT for each.
    assert walked <= 16 * COUNT < least * COUNT / 3


def test_what_fits_a_page_is_one_request() -> None:
    assert read([FIRST + b"a", FIRST + b"b"], 2) == (1, 2)
    assert read([], 2) == (1, 0)
