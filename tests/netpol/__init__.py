"""The scenarios of the Kubernetes NetworkPolicy end-to-end suite, with real packets."""
