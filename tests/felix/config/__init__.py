"""felix/config: parameters and their table."""
