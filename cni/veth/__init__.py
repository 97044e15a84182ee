"""The veth pair of a pod: made, compared, removed."""
