"""The identity of this node, and whether another machine lives under its name."""
