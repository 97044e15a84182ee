"""calicoctl as one executable file, with everything inside that a bare Python lacks."""
