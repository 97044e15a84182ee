"""The page has an image of its own; the others hold nothing of it."""

from __future__ import annotations

import pytest

from manifests.image import wheels
from manifests.image.contents import CONTROLLERS, NODE, TARGETS, WEB, room_left_out

SITE = "usr/local/lib/python3.11/dist-packages"


def test_the_page_is_left_out_of_the_other_images() -> None:
    for target in (NODE, CONTROLLERS):
        assert "calico-web" not in target.commands
        assert room_left_out(target, SITE, f"{SITE}/web/main.py")
        assert not room_left_out(target, SITE, f"{SITE}/node/main.py")
    assert not room_left_out(WEB, SITE, f"{SITE}/web/main.py")
    assert TARGETS["web"].start == ("calico-web",)
    assert WEB.user == CONTROLLERS.user


def test_only_its_image_has_the_packages_of_the_extra() -> None:
    plain, page = set(wheels.runtime()), set(wheels.runtime("web"))
    assert plain < page
    assert {"nicegui", "uvicorn", "websockets", "fastapi"} <= page - plain
    assert not {"playwright", "pytest", "muslin"} & page


@pytest.mark.parametrize("target", TARGETS)
def test_each_package_of_an_image_is_pinned_once(target: str) -> None:
    """One that the page needs as well as an extra of the others stands in both files."""
    extra = TARGETS[target].extra
    names = [block.partition("==")[0] for block in wheels.pins(extra)]
    assert names == wheels.runtime(extra)
    assert all(" --hash=sha256:" in block for block in wheels.pins(extra))
