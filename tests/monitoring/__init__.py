"""Dashboards and alerts name what the processes serve, and fire for what they are about."""
