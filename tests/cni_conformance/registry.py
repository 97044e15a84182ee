"""Checks by id: each becomes one test item for the executable and one for its Python twin.

    checks = Checks()

    @checks("ENV-09")
    def dummies_are_not_looked_at(stage: Stage) -> None: ...

    test_conformance = checks.items()

Several checks of one id run one after another in its item; a check of several ids runs once a
build. What a test of tests/cni shows already is taken from there (`checks.shown`): the fast tier
runs a third of it, for the twin only, since tests/cni runs all of it for the executable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cni.executable import BUILDS, FULL_SIZE, Build
from tests.cni_conformance.checklist import requirements
from tests.cni_conformance.stage import Stage

Check = Callable[[Stage], None]


class Checks:
    """The checks of one file."""

    def __init__(self) -> None:
        self._by_id: dict[str, list[Check]] = {}
        self._light: set[str] = set()

    def __call__(self, *ids: str) -> Callable[[Check], Check]:
        """Register a check for these ids."""

        def register(function: Check) -> Check:
            for one in ids:
                self._add(one, function)
                self._light.add(one)
            return function

        return register

    def shown(self, test: Callable[..., Any], *ids: str, **arguments: Any) -> None:
        """These ids are shown by a test of tests/cni; `arguments` are its parameters."""
        for one in ids:
            self._add(one, lambda stage: stage.show(test, arguments))

    def _add(self, one: str, function: Check) -> None:
        assert one in requirements(), one
        self._by_id.setdefault(one, []).append(function)

    def items(self) -> Callable[..., None]:
        """The test function of the file."""
        order = [one for one in requirements() if one in self._by_id]
        shown = [one for one in order if one not in self._light]
        fast = {*self._light, *shown[::3]}
        params = [
            pytest.param(one, build, id=f"{one}-{build.label}", marks=pytest.mark.cni(one))
            for one in order
            for build in BUILDS
            if FULL_SIZE or (one in fast and (build.is_twin or one in self._light))
        ]

        @pytest.mark.parametrize(("requirement", "build"), params)
        def test_conformance(requirement: str, build: Build, stage: Stage) -> None:
            stage.build = build
            for function in self._by_id[requirement]:
                stage.once(function)

        return test_conformance
