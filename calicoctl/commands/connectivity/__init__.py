"""`calicoctl connectivity`: one module a command."""
