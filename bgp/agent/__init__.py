"""The agent: one event loop around pure decisions, what it saves and what it tells."""
