"""Checks by id: each becomes one test item for the executable and one for its Python twin.

    checks = Checks()

    @checks("ENV-09")
    def dummies_are_not_looked_at(stage: Stage) -> None: ...

    test_conformance = checks.items()

Several checks of one id run one after another in its item; a check of several ids runs once a
build. What a test of tests/cni shows already is taken from there (`checks.shown`): the fast tier
runs one in eighteen, for the twin only, since tests/cni runs all of it for the executable. Of the
others the fast tier asks one build a check, in turns: that both answer the same to the byte is
what the vectors and the fuzz of tests/cni show. `./run cni-table` asks both everything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest

from tests.cni.executable import BUILDS, FULL_SIZE, Build
from tests.cni_conformance.checklist import requirements
from tests.cni_conformance.stage import Stage

Check = Callable[[Stage], None]
EVERY_ITEM = bool(os.environ.get("MUSLIN_EVERY_ITEM"))
"""For the table: every item of both builds, each at the fast tier's counts."""


class Checks:
    """The checks of one file."""

    def __init__(self, fast_builds: Sequence[str] = ("executable", "twin")) -> None:
        self._fast_builds = fast_builds
        self._promises: dict[str, list[str]] = {}
        self._by_id: dict[str, list[Check]] = {}
        self._light: dict[str, str] = {}
        """The build that the fast tier asks."""
        self._registered = 0

    def __call__(self, *ids: str) -> Callable[[Check], Check]:
        """Register a check for these ids."""

        def register(function: Check) -> Check:
            # One check, one build: run for both it would cost twice.
            build = self._fast_builds[self._registered % len(self._fast_builds)]
            self._registered += 1
            for one in ids:
                self._add(one, function)
                self._light.setdefault(one, build)
            return function

        return register

    def shown(self, test: Callable[..., Any], *ids: str, **arguments: Any) -> None:
        """These ids are shown by a test of tests/cni; `arguments` are its parameters."""
        for one in ids:
            self._add(one, lambda stage: stage.show(test, arguments))

    def promise(self, promise: str, *ids: str) -> None:
        """These ids exercise a promise of docs/promises.tsv."""
        for one in ids:
            self._promises.setdefault(one, []).append(promise)

    def _marks(self, one: str) -> list[pytest.MarkDecorator]:
        promises = self._promises.get(one, [])
        return [pytest.mark.cni(one), *([pytest.mark.promise(*promises)] if promises else [])]

    def _wanted(self, one: str, build: Build, fast: Collection[str]) -> bool:
        if FULL_SIZE or EVERY_ITEM:
            return True
        if one in self._light:
            return self._light[one] == build.label
        return one in fast and build.is_twin

    def _add(self, one: str, function: Check) -> None:
        assert one in requirements(), one
        self._by_id.setdefault(one, []).append(function)

    def items(self) -> Callable[..., None]:
        """The test function of the file."""
        order = [one for one in requirements() if one in self._by_id]
        shown = [one for one in order if one not in self._light]
        fast = shown[::18]
        params = [
            pytest.param(one, build, id=f"{one}-{build.label}", marks=self._marks(one))
            for one in order
            for build in BUILDS
            if self._wanted(one, build, fast)
        ]

        @pytest.mark.parametrize(("requirement", "build"), params)
        def test_conformance(requirement: str, build: Build, stage: Stage) -> None:
            stage.build = build
            for function in self._by_id[requirement]:
                stage.once(function)

        return test_conformance
