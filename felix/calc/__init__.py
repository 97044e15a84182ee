"""Pure calculation: from stored objects and offered paths to what this node should have."""
