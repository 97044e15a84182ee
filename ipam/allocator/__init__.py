"""Assigning and releasing addresses: plan, decide, commit; and repair of what was lost."""
