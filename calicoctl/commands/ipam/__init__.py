"""`calicoctl ipam`: one module a command."""
