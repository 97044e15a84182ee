"""What IPAM stores, as values: blocks, handles, pools, names and sizes."""
