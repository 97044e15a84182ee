"""`calicoctl cluster`: one module a command."""
