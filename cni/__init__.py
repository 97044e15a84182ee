"""CNI for Calico: the executable that a runtime calls, and the daemon that wires the pods."""
