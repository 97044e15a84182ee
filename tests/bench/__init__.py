"""Benchmarks: one file each, started by `./run bench NAME`."""
