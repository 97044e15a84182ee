"""The deterministic simulation: real code on a simulated kernel, store and clock, by one seed."""
