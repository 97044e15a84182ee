"""Tunnels and routes between nodes, in a lab of several machines."""
