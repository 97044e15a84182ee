"""Our wire-compatible subset of etcd's API and the stubs generated from it at install."""
