"""What `explain`, `policy plan` and `node drops` print, and where they get it from."""
