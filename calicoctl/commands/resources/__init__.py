"""Commands on resources: get, apply, patch, label, delete, confirm, convert, validate."""
