"""Recommended policies: random worlds with an oracle, and what an operator meets."""
