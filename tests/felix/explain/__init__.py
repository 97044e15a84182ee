"""felix/explain: verdicts without packets."""
