"""Kubernetes to datastore, and what only the whole cluster can tidy: `calico-kube-controllers`."""
