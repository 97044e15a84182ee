"""The mark that a test puts on all that it makes: whose it is, and until when. Pure.

What is marked and past its time belongs to a test that was killed; the next test removes it.
Tested in `tests/calicoctl/test_connectivity_via.py`.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

from libcalico.model.base.meta import now_text, seconds_at

LABEL = "muslin.io/connectivity-test"
UNTIL = "muslin.io/connectivity-test-until"
LIVE_SECONDS = 1800.0
"""Seconds for which what a test made counts as in use."""


def expiry(seconds: float = LIVE_SECONDS) -> str:
    """The time until which something made now is in use (RFC 3339)."""
    return now_text(datetime.fromtimestamp(time.time() + seconds, UTC))


def expired(text: str) -> bool:
    """Whether that time has passed; a text that is no time counts as passed."""
    until = seconds_at(text)
    return until is None or until < time.time()
