"""What needs another kernel than this machine's: run in user-mode Linux."""
