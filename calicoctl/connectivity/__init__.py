"""Tests the network from inside: probes in pods and on nodes, and what their results mean."""
