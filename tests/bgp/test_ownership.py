"""Who may announce what, by affinities and allocations."""

from __future__ import annotations

from ipaddress import ip_network

from hypothesis import given
from hypothesis import strategies as st

from bgp.cluster.ownership import Ownership
from tests.bgp.make import block, claim, net, view_of


def test_blocks_and_loans() -> None:
    view = view_of()
    claim(view, "n1", "10.65.1.0/26")
    claim(view, "n2", "10.65.2.0/26", "pending")
    block(view, "10.65.1.0/26", "n1", {1: "n1", 2: "n3"})
    owners = view.ownership.owners
    assert owners(net("10.65.1.0/26")) == {"n1"}
    assert owners(net("10.65.1.1/32")) == {"n1"}
    assert owners(net("10.65.1.0/27")) == {"n1"}
    assert owners(net("10.65.1.2/32")) == {"n3"}  # OWN-1
    assert owners(net("10.65.2.0/26")) == frozenset()  # OWN-2
    assert owners(net("10.65.2.9/32")) == {"n2"}
    assert owners(net("10.65.0.0/16")) == frozenset()
    assert owners(net("0.0.0.0/0")) == frozenset()
    block(view, "10.65.9.0/26", None, {7: "n2"})  # released, with an address still in use
    assert owners(net("10.65.9.7/32")) == {"n2"}
    assert owners(net("10.65.9.8/32")) == frozenset()
    claim(view, "n1", "10.65.1.0/26", None)
    block(view, "10.65.9.0/26", None, {})
    assert owners(net("10.65.1.0/26")) == owners(net("10.65.9.7/32")) == frozenset()


nets = st.sampled_from(
    [ip_network(f"10.65.0.{n * 8}/{length}") for n in range(4) for length in (29, 30)]
)
steps = st.lists(
    st.tuples(st.sampled_from(["n1", "n2"]), nets, st.sampled_from([None, "confirmed", "pending"]))
)


@given(steps)
def test_history_leaves_nothing(steps: list[tuple[str, object, str | None]]) -> None:
    """The answer depends on what stands now, not on how it came to be."""
    lived, last = Ownership(), {}
    for host, cidr, state in steps:
        lived.claim(host, cidr, state)  # type: ignore[arg-type]
        last[host, cidr] = state
    fresh = Ownership()
    for (host, cidr), state in last.items():
        fresh.claim(host, cidr, state)  # type: ignore[arg-type]
    assert lived == fresh
