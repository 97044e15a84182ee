"""The verbs of CNI: ADD, DEL, CHECK, GC, STATUS, and what they share."""
