"""Addresses without a pod, and addresses of load balancers."""
