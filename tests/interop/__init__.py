"""Our programs and Calico's own on one etcd; see docs/interop.md."""
