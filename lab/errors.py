"""What can go wrong in the lab, said in one sentence to the person who typed the command."""

from __future__ import annotations


class LabError(Exception):
    """What was tried, on which object, and what the system said."""
