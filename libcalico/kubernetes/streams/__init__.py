"""The connections under the client of the Kubernetes API, with an event loop and without."""
