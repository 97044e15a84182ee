"""What BGP needs of the cluster: nodes, services, blocks, interfaces."""
