"""`calicoctl trace` on two nodes of a lab: planted causes, each of which it must name."""
