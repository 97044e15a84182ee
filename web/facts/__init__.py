"""What the page knows: read from the datastore and from nodes, kept, and read again."""
