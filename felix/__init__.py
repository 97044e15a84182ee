"""The per-node agent: from the datastore and `bgp`'s paths to routes, rules and sets."""

ROUTE_PROTOCOL = 109
"""The rtnetlink protocol number that marks a route as ours (80, 12, 3 are Calico's and BIRD's)."""

ROUTE_METRIC = 1024
"""The metric of every route of ours: Calico v3.32's normal route priority, and IPv6's own default.

It is never 0, so that replacing a route of ours can never hit a connected route of the kernel.
"""
