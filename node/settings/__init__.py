"""The variables that configure a node."""
