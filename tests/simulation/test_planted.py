"""Bugs of the kind that the simulation is for are found, each within 2,000 seeds."""

from __future__ import annotations

import os

import pytest

from tests.simulation import planting
from tests.simulation.test_simulation import KNOWN

FULL = bool(os.environ.get("MUSLIN_FULL_SIZE"))
SEEDS = {
    "addresses_a_block_is_made_anew_empty": 30,
    "addresses_c_a_clone_collects": 0,
    "addresses_g_a_deleted_node_is_released_at_once": 27,
    "addresses_g_a_deleted_node_stays_deleted": 0,
    "addresses_h_a_deleted_claim_stays_deleted": 4,
    "addresses_one_look_is_enough": 2,
    "bgp_a_new_felix_is_told_only_news": 5,
    "bgp_a_withdrawal_is_not_told": 2,
    "felix_a_failed_restore_is_believed": 44,
    "felix_a_set_keeps_a_member": 10,
    "felix_b_an_offer_never_ends": 1,
    "felix_f_a_disabled_pool_cuts_off": 41,
    "felix_lost_messages_unheard": 5,
    "felix_what_cannot_be_read_closes": 50,
}
"""A seed of its world that finds each: where it does so still, no other is run. Where a world or
the code changes, `python -m tests.simulation.planting` tells them anew."""
UNSETTLED = frozenset(
    {
        "felix_a_listing_keeps_what_is_gone",
        "felix_a_retraction_hides_the_next_container",
        "felix_events_during_a_dump_are_dropped",
    }
)
"""Planted, and not found yet. Each is to be found, or taken away with the reason why no order of
events can show it."""
SOUGHT = [name for name in planting.names() if name not in UNSETTLED]


def test_there_are_ten() -> None:
    """At least, and each names a world."""
    assert len(SOUGHT) >= 10
    assert set(planting.names()) >= UNSETTLED | SEEDS.keys()
    assert {planting.world_of(name) for name in SOUGHT} == {"felix", "bgp", "addresses"}


@pytest.mark.parametrize("name", SOUGHT if FULL else SEEDS)
def test_a_planted_bug_is_found(name: str) -> None:
    """In a copy of the tree with this patch."""
    found = planting.hunt(name, 1, known=KNOWN, first=SEEDS[name]) if name in SEEDS else None
    if found is None or found.seed is None:
        # Whatever changes what is told, or when, makes other runs of the same seeds.
        found = planting.hunt(name, known=KNOWN)
    assert found.seed is not None, name
