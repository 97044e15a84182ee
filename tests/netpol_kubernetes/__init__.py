"""The scenarios of tests/netpol on a real kube-apiserver."""
