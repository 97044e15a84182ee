"""The allocator's model: production code in a world where every store call can go wrong."""
