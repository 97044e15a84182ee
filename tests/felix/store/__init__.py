"""felix/store: what is kept on the node."""
