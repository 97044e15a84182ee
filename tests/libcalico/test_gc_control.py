"""The collector rests as long as anybody wants it to, and is then as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from libcalico.gc_control import resting


@pytest.fixture(scope="module", autouse=True)
def set_aside() -> Iterator[None]:
    """What tests/conftest.py has set aside is so again, for the tests after these."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    was = gc.isenabled()
    yield
    (gc.enable if was else gc.disable)()
    gc.unfreeze()


def test_it_rests_until_the_last_lets_it_go_on() -> None:
    gc.enable()
    first, second = resting(), resting()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_who_had_it_off_finds_it_off() -> None:
    gc.disable()
    with resting():
        pass
    assert not gc.isenabled()


def test_what_lasts_is_walked_no_more() -> None:
    gc.unfreeze()
    with resting(lambda: False):
        pass
    assert not gc.get_freeze_count()
    with resting(lambda: True):
        pass
    assert gc.get_freeze_count()


def test_after_an_exception_it_goes_on_and_nothing_is_kept() -> None:
    gc.enable()
    gc.unfreeze()
    with pytest.raises(ValueError, match="no"), resting(lambda: True):
        raise ValueError("no")
    assert gc.isenabled()
    assert not gc.get_freeze_count()
