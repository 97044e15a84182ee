"""The edge of the checks: reads kernel, files, sockets and datastore into `node.checks.facts`."""
