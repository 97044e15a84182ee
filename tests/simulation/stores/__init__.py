"""Simulated stores: etcd's and Kubernetes' ways of telling."""
