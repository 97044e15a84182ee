"""Kubernetes' own network suites, compiled from their modules, on clusters with our network."""
