"""The smallest policies of a namespace that allow what was seen in flows.

`seen` reads flows, `crowd` finds the endpoints behind their names, `choose` finds selectors,
`peers` the other ends, `policies` writes documents, `proof` holds them against what was seen.
"""
