"""The state of a whole cluster as plain values: what is read, how it is judged, how it is told."""
