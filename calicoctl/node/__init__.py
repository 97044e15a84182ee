"""What `calicoctl node` does; the only part of `calicoctl` that may look at the kernel."""
