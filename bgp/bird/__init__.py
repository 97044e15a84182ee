"""BIRD's control protocol, answered as BIRD would."""
