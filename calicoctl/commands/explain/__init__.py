"""`calicoctl explain`: one module a command."""
