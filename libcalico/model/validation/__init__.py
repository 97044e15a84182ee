"""Validators that refuse what Calico refuses: one module a kind."""
