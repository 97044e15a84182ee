"""The numbers of a NOTIFICATION in words."""

from __future__ import annotations

import pytest

from bgp.speaker.exabgp.notices import explained


@pytest.mark.promise("PAIN-11")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("notification sent (4,0)", "notification sent (4,0): hold timer expired"),
        (
            "notification received (2,2)",
            "notification received (2,2): wrong AS number of the peer",
        ),
        ("notification received (3,6)", "notification received (3,6): UPDATE message error"),
        ("notification received (99,1)", "notification received (99,1)"),
        ("notification sent (6,2) with more", "notification sent (6,2) with more"),
        ("closing connection", "closing connection"),
        ("", ""),
    ],
)
def test_explained(words: str, told: str) -> None:
    assert explained(words) == told
