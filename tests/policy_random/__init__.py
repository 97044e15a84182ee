"""Random policy worlds, an oracle that shares no code with the product, and real packets."""
