"""The command line: reads and writes the datastore, and tells how this node is doing."""
