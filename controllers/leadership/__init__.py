"""One process works at a time: the lease, and writes that only its holder makes."""
