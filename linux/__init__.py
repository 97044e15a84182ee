"""The kernel as tables: links, addresses, routes, neighbours, sets, rules, sysctls, namespaces."""
