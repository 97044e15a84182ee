"""`calicoctl node`: one module a command."""
