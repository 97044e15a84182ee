"""Tests of the room `controllers`."""
