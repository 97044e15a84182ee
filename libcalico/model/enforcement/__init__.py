"""Which fields are enforced, which are only stored."""
