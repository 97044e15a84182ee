"""A kernel made of tables: links, addresses, routes, neighbours, IP sets, chains of iptables."""
