"""`calico-node trace`: what one node sees of one connection attempt, told as lines of JSON."""
