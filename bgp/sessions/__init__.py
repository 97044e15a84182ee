"""Sessions as they are: states, graceful restart, status, diagnosis."""
