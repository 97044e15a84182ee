"""Sets of members that rules name: what selectors, and services, come to at each moment."""
