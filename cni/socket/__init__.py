"""The private socket between executable and daemon: frames, locks, traces of calls."""
