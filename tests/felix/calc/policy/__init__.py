"""felix/calc/policy: pure calculation."""
