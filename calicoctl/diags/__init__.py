"""Archives for people who are asked to help: what is in them, and what never is (DIAG-1)."""
