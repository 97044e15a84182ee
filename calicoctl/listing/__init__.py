"""What `get` reads and lists."""
