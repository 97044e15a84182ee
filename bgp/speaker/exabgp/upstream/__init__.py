"""What ExaBGP 5.0 does otherwise than a node needs, put right in its process."""
