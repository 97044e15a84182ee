"""What an administrator does to addresses: check, release, split, migrate, remove a node."""
