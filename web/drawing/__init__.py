"""Views as HTML and SVG. Pure; all text is escaped where it becomes markup."""
