"""`calicoctl policy`: one module a command."""
