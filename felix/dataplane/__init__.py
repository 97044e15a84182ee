"""The edge to the kernel: what is there, what differs from the desired, and its commit."""
