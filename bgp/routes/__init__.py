"""Routes: what is exported, accepted, best, and told to whom."""
