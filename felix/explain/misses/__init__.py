"""Near misses: rules and policies that almost decided, and the one clause that did not match.

`near` finds them for an answer, `clauses` holds a rule's clauses against a packet, `terms` finds
the terms of a selector that fail, `hints` knows the usual mistakes.
"""
