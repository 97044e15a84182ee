"""The policies of the story, as an operator writes them, applied and taken away by calicoctl."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from lab.demo.story import Story
from lab.demo.transcript import Transcript

DENY = """\
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: default-deny, namespace: db}
spec:
  selector: all()
  types: [Ingress]
"""
_ALLOW = """\
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {{name: allow-by-role, namespace: db}}
spec:
  order: 100
  selector: app == 'db'
  types: [Ingress]
  ingress:
  - action: Allow
    protocol: TCP
    source:
      selector: role in {{ {tcp} }}
      namespaceSelector: projectcalico.org/name == 'web'
    destination: {{ports: [8080]}}
  - action: Allow
    protocol: UDP
    source:
      selector: role in {{ {udp} }}
      namespaceSelector: all()
    destination: {{ports: ["8080:8081"]}}
  - action: Allow
    protocol: ICMP
    icmp: {{type: 8}}
    source:
      selector: role == 'frontend'
      namespaceSelector: all()
"""


def allow(*tcp: str, udp: Sequence[str] = ("store",)) -> str:
    """To db pods: TCP for pods of web with a role of `tcp`, UDP for any with one of `udp`. Pure."""
    quoted = [", ".join(f"'{role}'" for role in roles) for roles in (tcp, udp)]
    return _ALLOW.format(tcp=quoted[0], udp=quoted[1])


def apply(story: Story, transcript: Transcript, *documents: str) -> None:
    """`calicoctl apply`, as typed."""
    command, text = ["calicoctl", "apply", "-f", "-"], "---\n".join(documents)
    transcript.show(story.lab.nodes[0], command, stdin=text)


@contextlib.contextmanager
def applied(story: Story, transcript: Transcript, *documents: str) -> Iterator[None]:
    """The policies are there while the body runs; afterwards none of the story's is."""
    node, quiet = story.lab.nodes[0], Transcript(lambda _: None)
    if documents:
        apply(story, quiet, *documents)
        transcript.note(f"node1$ calicoctl apply: {', '.join(map(name, documents))}")
    try:
        yield
    finally:
        command, text = ["calicoctl", "delete", "-f", "-"], "---\n".join((DENY, allow("any")))
        quiet.show(node, [*command, "--skip-not-exists"], stdin=text, check=False)
        transcript.note(f"node1$ calicoctl delete: {quiet.lines[-1].splitlines()[-1]}")


def name(document: str) -> str:
    """The policy's name in a document of ours. Pure."""
    return document.partition("name: ")[2].partition(",")[0]
