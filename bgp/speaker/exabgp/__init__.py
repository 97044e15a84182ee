"""The ExaBGP speaker: configuration, child process, line protocol."""
