"""The errors of the lab: each is one sentence for the person who typed the command."""

from __future__ import annotations


class LabError(Exception):
    """An error that says what was tried, on which object, and what the system said."""
