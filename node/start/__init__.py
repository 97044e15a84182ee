"""Node start-up: address, Node resource, defaults, kernel modules, tunnels."""
