"""Felix's parameters: one table, and where their values come from."""
