"""The datastore on etcd v3, in Calico's key layout."""
