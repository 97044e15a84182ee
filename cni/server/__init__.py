"""The daemon: its socket's other end, its start, and what it does beside calls."""
