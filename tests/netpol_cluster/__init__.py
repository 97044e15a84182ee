"""The conformance cases of ClusterNetworkPolicy, with packets."""
