"""`calicoctl datastore`: one module a command."""
