"""Flow logs of a node: connections of its pods, joined with what decided about them."""
