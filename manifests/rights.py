"""Who may do what on the Kubernetes API: read from the manifests, compared with what was done.

A rule and the comment above it are read from the rendered text, so docs/rbac.md says what the
manifest says. An audit log of an API server tells which calls the accounts made; a call that no
rule covers was refused, and a rule that no call used may be too much.
Tested in tests/manifests/test_rights.py, against a real API server in tests/manifests/test_rbac.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

PREFIX = "system:serviceaccount:kube-system:"
ACCOUNTS = ("calico-node", "calico-kube-controllers")


HEAD = """
# Rights on the Kubernetes API

Made by `./run manifests rbac-report` from the manifests. A test runs all processes with these
accounts against a real API server and reads its audit log: no call is refused, and each rule is
used (`tests/manifests/test_rbac.py`). For a log of your own: `./run manifests rbac-report --audit
FILE`.

Nobody reads Secrets. Where BGP peerings have passwords, name their Secrets of kube-system in a Role
of your own, or in the chart's `bgp.passwordSecrets`:

```yaml
rules:
  - apiGroups: [""]
    resources: [secrets]
    resourceNames: [bgp-passwords]
    verbs: [list, watch]
```

Where a network template asks for a kubeconfig on the disk (`__KUBECONFIG_FILEPATH__`), nodes also
need `create` of `serviceaccounts/token` with resourceNames `[calico-cni-plugin]` in kube-system:
whoever has the node's token then has that one.
"""


@dataclass(frozen=True, slots=True)
class Call:
    """One request: to what, and how. `resource` is with its part, such as `pods/status`."""

    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""

    def told(self) -> str:
        """In words."""
        return f"{self.verb} {self.resource}{'.' + self.group if self.group else ''}"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a role, with the reason above it. `namespace` is empty for a ClusterRole."""

    account: str
    namespace: str
    why: str
    groups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()

    def covers(self, call: Call) -> bool:
        """Whether it allows a call. `list` and `watch` by a name count as of that name."""
        return (
            call.group in self.groups
            and call.resource in self.resources
            and call.verb in self.verbs
            and (not self.namespace or call.namespace == self.namespace)
            and (not self.names or call.name in self.names)
        )

    def single(self) -> Iterator[tuple[str, str]]:
        """Each resource with each verb."""
        for resource in self.resources:
            for verb in self.verbs:
                yield resource, verb


@dataclass
class Coverage:
    """What an audit log says of the rules."""

    used: dict[Rule, set[tuple[str, str]]] = field(default_factory=dict)
    uncovered: set[tuple[str, Call]] = field(default_factory=set)
    refused: set[tuple[str, Call]] = field(default_factory=set)

    def unused(self) -> list[Rule]:
        """Rules that no call used."""
        return [rule for rule, pairs in self.used.items() if not pairs]

    def left_over(self) -> set[tuple[str, str, str]]:
        """Account, resource and verb of what is allowed and was not used."""
        return {
            (rule.account, *pair)
            for rule, pairs in self.used.items()
            for pair in rule.single()
            if pair not in pairs
        }


def rules(manifest: str) -> list[Rule]:
    """The rules of all roles in a rendered manifest, in its order."""
    found = []
    for text in re.split(r"^---\n", manifest, flags=re.MULTILINE):
        if not re.search(r"^kind: (Cluster)?Role$", text, re.MULTILINE):
            continue
        role = yaml.safe_load(text)
        reasons = list(_reasons(text))
        if len(reasons) != len(role["rules"]):
            raise ValueError(f"{role['metadata']['name']}: a rule has no comment above it")
        for why, one in zip(reasons, role["rules"], strict=True):
            found.append(
                Rule(
                    role["metadata"]["name"],
                    role["metadata"].get("namespace", ""),
                    why,
                    tuple(one["apiGroups"]),
                    tuple(one["resources"]),
                    tuple(one["verbs"]),
                    tuple(one.get("resourceNames", ())),
                )
            )
    return found


def _reasons(text: str) -> Iterator[str]:
    comment: list[str] = []
    inside = False
    for line in text.splitlines():
        inside = inside or line == "rules:"
        if inside and line.startswith("  # "):
            comment.append(line.removeprefix("  # "))
        elif line.startswith("  - apiGroups") and comment:
            yield " ".join(comment)
            comment = []


def calls(log: Iterable[str]) -> Iterator[tuple[str, Call, int]]:
    """Account, call and status of every finished request of our accounts in an audit log."""
    for line in log:
        try:
            event: Mapping[str, Any] = json.loads(line)
        except ValueError:
            # The server may be writing the last line.
            continue
        user = event.get("user", {}).get("username", "")
        account = user.removeprefix(PREFIX)
        reference = event.get("objectRef")
        if account == user or account not in ACCOUNTS or not reference:
            continue
        if event.get("stage") not in ("ResponseComplete", "ResponseStarted", "Panic"):
            continue
        resource = "/".join(filter(None, (reference.get("resource"), reference.get("subresource"))))
        call = Call(
            reference.get("apiGroup", ""),
            resource,
            event["verb"],
            reference.get("namespace", ""),
            reference.get("name", "") or _selected(event.get("requestURI", "")),
        )
        yield account, call, event.get("responseStatus", {}).get("code", 0)


def _selected(uri: str) -> str:
    """The name that a list or watch is narrowed to (`fieldSelector=metadata.name%3DNAME`)."""
    found = re.search(r"fieldSelector=metadata\.name(?:%3D|=)([^&]*)", uri)
    return found.group(1) if found else ""


def coverage(granted: Iterable[Rule], log: Iterable[str]) -> Coverage:
    """Which rules were used, and by which calls; what was done without a rule."""
    found = Coverage({rule: set() for rule in granted})
    for account, call, status in calls(log):
        if status == 403:
            found.refused.add((account, call))
        covering = [rule for rule in found.used if rule.account == account and rule.covers(call)]
        if not covering:
            found.uncovered.add((account, call))
        for rule in covering:
            found.used[rule].add((call.resource, call.verb))
    return found


def report(manifests: Mapping[str, str]) -> str:
    """docs/rbac.md: every rule of every account, by datastore."""
    parts = [HEAD.strip()]
    for name, text in manifests.items():
        for account in ACCOUNTS:
            mine = [rule for rule in rules(text) if rule.account == account]
            parts.append(f"## {name}: {account} ({len(mine)} rules)")
            lines = ["| where | resources | verbs | why |", "|---|---|---|---|"]
            lines += [_row(rule) for rule in mine]
            parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _row(rule: Rule) -> str:
    group = ", ".join(each for each in rule.groups if each)
    resources = ", ".join(f"`{each}`" for each in rule.resources)
    resources += f" ({group})" if group else ""
    if rule.names:
        resources += " named " + ", ".join(f"`{each}`" for each in rule.names)
    return f"| {rule.namespace or 'cluster'} | {resources} | {', '.join(rule.verbs)} | {rule.why} |"


def told(found: Coverage) -> str:
    """A coverage in words: what was refused or is not covered, and what nobody used."""
    lines = [
        f"{word}: {account}: {call.told()}"
        for word, calls_ in (("refused", found.refused), ("no rule", found.uncovered))
        for account, call in sorted_calls(calls_)
    ]
    lines += [f"unused: {' '.join(each)}" for each in sorted(found.left_over())]
    return "\n".join(lines) or "every call is covered, and everything granted was used"


def sorted_calls(found: set[tuple[str, Call]]) -> list[tuple[str, Call]]:
    """In the order of their words."""
    return sorted(found, key=lambda each: (each[0], each[1].told(), each[1].name))
