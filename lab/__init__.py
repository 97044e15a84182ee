"""A cluster of network namespaces on one machine: what demo, tests and benchmarks stand on.

Machines are kernel namespaces, not mocks: real etcd, real BIRD, real agents, real packets.
The lab plays the parts around Muslin (fabric, datastore, container runtime) and never writes
what Muslin's own processes write.

Invariant LAB-1: no WorkloadEndpoint is ever written by the lab.
"""
