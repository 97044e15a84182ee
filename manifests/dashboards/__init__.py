"""Dashboards for Grafana: what they show, and their files (`./run manifests render`)."""
