"""A test that configures logging leaves nothing of it to the next."""

from __future__ import annotations

import logging

from libcalico.process import logs
from tests.support.logging_state import logging_restored


def test_what_was_configured_ends() -> None:
    root = logging.getLogger()
    level, source = root.level, logging._srcfile
    with logging_restored():
        logs.configure("calicoctl", "DEBUG")
        (ours,) = root.handlers
        assert isinstance(ours, logging.StreamHandler)
    assert ours not in root.handlers
    assert (root.level, logging._srcfile) == (level, source)
