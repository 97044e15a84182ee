"""Finding addresses whose pod is gone, and proving it before they are released."""
