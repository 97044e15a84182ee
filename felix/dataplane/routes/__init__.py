"""Routes of pods and of other nodes, and what follows from them."""
