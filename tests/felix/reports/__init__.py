"""felix/reports: what felix says of itself."""
