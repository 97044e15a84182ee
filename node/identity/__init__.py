"""Who this node is, and whether another machine lives under its name."""
