"""One module per command group, imported only when that command is asked for."""
