"""felix/calc: pure calculation."""
