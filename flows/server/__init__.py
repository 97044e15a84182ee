"""The program `calico-goldmane`: flows of all nodes behind Goldmane's API."""
