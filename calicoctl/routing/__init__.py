"""The BGP of the whole cluster as it is configured: what a change does to it, and its picture."""
