"""The words in which a scenario is written: apply, delete, expect.

Objects are Kubernetes YAML. Applying a Namespace again changes its labels, applying a Pod again
changes the labels of the running pod, as kubectl would.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent, indent


@dataclass(frozen=True)
class Apply:
    """Create or change objects."""

    text: str


@dataclass(frozen=True)
class Delete:
    """Delete objects, named by their own text."""

    text: str


@dataclass(frozen=True)
class Expect:
    """The whole matrix on one protocol and port, `tcp:80`, must be as the lines say."""

    door: str
    lines: tuple[str, ...]


Step = Apply | Delete | Expect


@dataclass(frozen=True)
class Case:
    """One scenario. `name` is the pytest id."""

    name: str
    steps: tuple[Step, ...]


def case(name: str, *steps: Step) -> Case:
    """A scenario of some steps."""
    return Case(name, steps)


def expect(door: str, *lines: str) -> Expect:
    """All pairs open but for what the lines say, on `tcp:80` and the like."""
    return Expect(door, lines)


def policy(name: str, namespace: str, spec: str) -> str:
    """A NetworkPolicy document from the text of its spec."""
    head = (
        f"---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n"
        f"metadata:\n  name: {name}\n  namespace: {namespace}\nspec:\n"
    )
    return head + indent(dedent(spec).strip("\n"), "  ") + "\n"
