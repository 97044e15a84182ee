"""Parts that all resources share: metadata, numbers as text, unknown fields, shapes."""
