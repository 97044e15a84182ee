"""Kinds that are mirrored from Kubernetes into etcd."""
