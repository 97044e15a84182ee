"""What Calico refuses, refused in the same places: one module a kind."""
