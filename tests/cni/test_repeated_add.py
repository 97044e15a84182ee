"""An ADD that is repeated and refused, for whatever reason, takes nothing from the pod that runs.

The world is that of tests/cni/test_attachment_model.py, without trouble.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from cni.request.errors import CNIError, Code
from libcalico.datastore.interface import Entry
from libcalico.errors import InvalidValue
from libcalico.model.keys import Key
from tests.cni.test_attachment_model import calm


@pytest.mark.parametrize(
    "error",
    [
        InvalidValue("spec.node", "?", "cannot be read"),
        CNIError(Code.INVALID_CONFIG, "played"),
        RuntimeError("a bug"),
    ],
)
@pytest.mark.asyncio
async def test_a_repeated_add_that_meets_what_cannot_be_read_leaves_the_pod_what_it_has(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ADD-07: the journal would take address and link of the pod that runs."""
    world = await calm(tmp_path, monkeypatch)
    (pod,) = world.containers
    await world.add(pod)
    assert pod.up
    read = world.store.get_many

    async def broken(keys: Sequence[Key]) -> dict[Key, Entry | None]:
        raise error

    world.store.get_many = broken  # type: ignore[method-assign]
    with suppress(RuntimeError):
        await world.add(pod)
    world.store.get_many = read  # type: ignore[method-assign]
    assert world.context.journal.count() == 0
    await world.journal()
    world.look()
    await world.finish()
