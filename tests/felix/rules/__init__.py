"""felix/rules: rules as values and as text."""
