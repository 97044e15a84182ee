"""Which sessions a node holds: mesh, BGPPeers, route reflectors, passwords."""
