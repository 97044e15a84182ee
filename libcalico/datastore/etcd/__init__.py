"""The datastore on etcd v3, in Calico's key layout."""

import os

# Read by gRPC when it is imported, which happens below this package only.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
