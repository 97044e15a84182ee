"""What the daemon knows of its node: cluster, felix, queue of DELs, journal of ADDs."""
