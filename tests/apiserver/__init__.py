"""Tier `apiserver`: a real kube-apiserver with a real etcd, and what of ours talks to it."""
