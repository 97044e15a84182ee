"""The kinds of resources, one module a kind."""
