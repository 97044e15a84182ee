"""The per-node agent: from the datastore and `bgp`'s paths to routes, rules and sets."""

from libcalico.local.node_api import ROUTE_METRIC, ROUTE_PROTOCOL

__all__ = ["ROUTE_METRIC", "ROUTE_PROTOCOL"]
