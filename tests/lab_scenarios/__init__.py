"""Labs of whole networks: what an operator can expect of each, by the numbers of its README."""
