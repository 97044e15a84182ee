"""Tests of `libcalico`."""
