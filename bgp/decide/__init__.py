"""All decisions of one state of the cluster: sessions, routes, terms, handover."""
