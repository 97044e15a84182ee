"""Labels of endpoints follow those of pods, namespaces and accounts."""
