"""Policy: which rules each local endpoint has, and who is in the sets that the rules name."""

from felix.calc.policy.engine import KINDS, PolicyEngine

__all__ = ["KINDS", "PolicyEngine"]
