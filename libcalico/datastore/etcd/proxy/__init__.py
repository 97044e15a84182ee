"""Long reads of etcd through one of several proxies."""
