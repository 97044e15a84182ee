"""A felix that runs, in the kernel: packets, rules, restarts, repair."""
