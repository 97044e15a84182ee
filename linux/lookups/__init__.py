"""Questions to the kernel about one packet, connection or interface; nothing is changed."""
