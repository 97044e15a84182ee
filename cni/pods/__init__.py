"""What a pod asks for, and who knows it: the Kubernetes API, its endpoint, its events."""
