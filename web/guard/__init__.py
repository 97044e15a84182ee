"""Who may look, and what a browser may do with what it gets."""
