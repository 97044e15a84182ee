"""felix/dataplane: the loop and its parts, some with a kernel."""
