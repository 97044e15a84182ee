"""Pools as grids."""

from __future__ import annotations

from tests.web import world
from web.views.addresses import FILLS, block_view, other_problems, pools


def test_pools_with_their_blocks() -> None:
    grids = {grid.name: grid for grid in pools(world.facts())}
    assert list(grids) == ["pods", "small"]
    pods = {cell.cidr: cell for cell in grids["pods"].blocks}
    assert set(pods) == {"10.65.0.0/26", "10.65.1.0/26", "10.65.2.0/26"}
    assert (pods["10.65.1.0/26"].owner, pods["10.65.1.0/26"].used) == ("n1", 2)
    assert pods["10.65.1.0/26"].problems == ()
    assert grids["pods"].unclaimed == 1024 - 3
    (full,) = grids["small"].blocks
    assert (full.fill, grids["small"].share, grids["small"].free) == (FILLS[-1], "100 %", 0)


def test_a_leak_outlines_its_block_and_says_what_it_is() -> None:
    (grid, _) = pools(world.facts())
    leaky = next(cell for cell in grid.blocks if cell.cidr == "10.65.0.0/26")
    assert "10.65.0.1 leaked" in leaky.problems[0]
    assert "1 problem: 10.65.0.1 leaked" in leaky.text
    assert all(one not in dict(other_problems(world.facts())) for one in ("10.65.0.1",))


def test_a_block_by_its_network_and_by_an_address_of_it() -> None:
    facts = world.facts()
    grids = pools(facts)
    for text in ("10.65.1.0/26", "10.65.1.13"):
        shown = block_view(facts, grids, text)
        assert shown is not None
        assert shown.cell.cidr == "10.65.1.0/26"
        assert {row.state for row in shown.rows} == {"in use"}
        assert any("Workload(shop/" in row.users for row in shown.rows)
    for text in ("10.99.0.0/26", "nonsense", "fd00::1", "10.0.0.0/8"):
        assert block_view(facts, grids, text) is None


def test_a_block_that_is_nearly_full_does_not_look_full() -> None:
    assert len(set(FILLS)) == len(FILLS)
    (grid, _) = pools(world.facts())
    assert all(cell.fill != FILLS[-1] for cell in grid.blocks)
