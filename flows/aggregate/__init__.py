"""The flows of one hour in buckets of 15 seconds, and what is asked about them; pure."""
