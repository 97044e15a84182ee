"""`calicoctl bgp`: one module a command."""
