"""Flows that the aggregator has seen: which are asked for, and how they are shown."""
