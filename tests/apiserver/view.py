"""What a reflector told, and whether it kept its promises while telling it."""

from __future__ import annotations

from dataclasses import dataclass, field

from libcalico.kubernetes.names import Name
from libcalico.kubernetes.objects import Object


@dataclass
class View:
    """A sink that checks REF-1 and REF-2: nothing goes back, nothing is told twice."""

    objects: dict[Name, str] = field(default_factory=dict)
    told: list[tuple[Name, str]] = field(default_factory=list)
    lists: int = 0
    may_go_back: bool = False
    faults: list[str] = field(default_factory=list)

    def put(self, name: Name, value: Object) -> None:
        """An object is so now."""
        revision = value.metadata.resourceVersion
        before = self.objects.get(name, "0")
        if not self.may_go_back and int(revision) <= int(before):
            self.faults.append(f"{name}: {revision} told after {before}")
        self.objects[name] = revision
        self.told.append((name, revision))

    def gone(self, name: Name) -> None:
        """It is gone."""
        if name not in self.objects:
            self.faults.append(f"{name}: gone, never told")
        self.objects.pop(name, None)
        self.told.append((name, ""))

    def listed(self) -> None:
        """All was told."""
        self.lists += 1

    @property
    def names(self) -> set[str]:
        """The names, without their namespace."""
        return {name.name for name in self.objects}
