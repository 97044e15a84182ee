"""Flows: what connected to what, and which rule decided; the aggregator and its clients."""
