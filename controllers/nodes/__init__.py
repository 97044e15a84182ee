"""Nodes that come and go, their labels and their host endpoints."""
