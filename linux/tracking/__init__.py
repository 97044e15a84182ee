"""Connections as the kernel tracks them."""
