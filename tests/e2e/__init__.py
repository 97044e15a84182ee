"""The whole story with real packets, planted faults, bad input."""
