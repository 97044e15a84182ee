"""Why is this packet let in or dropped: questions about policy, answered by the calculation.

Pure, and without a semantics of its own: policies in order come from `felix.calc.policy`, what a
rule matches from `felix.rules.fragments`, chains and rule numbers from the renderers. So an
answer can only be wrong where felix itself is. `calicoctl explain`, `calicoctl policy plan` and
felix's own answers over `node.sock` stand on it. docs/explain.md shows it from outside.
"""
