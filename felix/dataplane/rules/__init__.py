"""Rules and sets in the kernel, for either back end."""
