"""Plants a bug in a felix that runs for real: Python reads this file where PYTHONPATH names it.

MUSLIN_PLANTED names one of `tests.policy_random.plants.PLANTS`. When the renderer of policies is
imported, the rules that it is given pass through that change first; nothing else is touched.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

RENDERER = "felix.rules.policy"


class Planter(Loader):
    """Loads the renderer as it is, then bends what it calls."""

    def __init__(self, real: Loader) -> None:
        self.real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the real one."""
        return self.real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute, then plant."""
        self.real.exec_module(module)
        from tests.policy_random.plants import PLANTS

        change, split = PLANTS[os.environ["MUSLIN_PLANTED"]], module.__dict__["fragments"]

        def fragments(rule: Any, *rest: Any) -> Any:
            return split(change(rule), *rest)

        module.__dict__["fragments"] = fragments


class Finder(MetaPathFinder):
    """Finds the renderer first."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The renderer's spec with our loader; None for everything else."""
        if name != RENDERER:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = Planter(spec.loader)
        return spec


if os.environ.get("MUSLIN_PLANTED"):
    sys.meta_path.insert(0, Finder())
