"""Felix as a process: its start, its servers, its limits."""
