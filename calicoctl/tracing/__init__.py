"""A traced connection as a story: lines of the nodes, stages, the cause, and how they are shown."""
