"""Links: tunnels, MTU, offloads, interface names, and the view of the kernel."""
