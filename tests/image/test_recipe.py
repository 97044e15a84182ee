"""The recipe: the same input makes the same bytes, and nothing in them is more than it must be."""

from __future__ import annotations

import json
import shutil
import stat
from email import message_from_string
from pathlib import Path

import pytest

from manifests.image import build, cache, wheels
from manifests.image.build import EPOCH
from manifests.image.cache import BuildError
from manifests.image.contents import NODE, PLUGINS
from tests.image.conftest import FULL, Unpacked


def a_copy(target: Path) -> Path:
    """The sources as a release has them: no git, nothing that was built."""
    for path in [*wheels.sources(), wheels.ROOT / "manifests" / "install-cni.sh"]:
        place = target / path.relative_to(wheels.ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    return target


def test_the_same_input_gives_the_same_digest(
    fetched: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two builds in two places keep nothing in common but what was downloaded.

    The fast tier builds our wheel, the full size the whole image.
    """
    shutil.copytree(a_copy(tmp_path / "one"), tmp_path / "two")
    first = _made(tmp_path / "one")
    kept = tmp_path / "cache" / "image"
    kept.mkdir(parents=True)
    for name in ("debs", "wheels"):
        (kept / name).symlink_to(cache.folder("image", name))
    monkeypatch.setenv("MUSLIN_CACHE", str(kept.parent))
    assert _made(tmp_path / "two") == first


def _made(root: Path) -> tuple[str, str]:
    return build.image(NODE, root=root).digest if FULL else "", wheels.ours(root, EPOCH).sha256


@pytest.mark.skipif(not FULL, reason="builds two images: at full size only")
def test_a_changed_file_changes_the_last_layer_alone(fetched: None, tmp_path: Path) -> None:
    root = a_copy(tmp_path / "tree")
    before = build.trees(NODE, root, EPOCH)[0]
    (root / "node" / "__init__.py").write_text('"""Another."""\n')
    after = build.trees(NODE, root, EPOCH)[0]
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, True, False]


@pytest.mark.parametrize("text", ["yesterday", "-1", "1000"])
def test_a_time_before_1980_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", text)
    with pytest.raises(BuildError, match="SOURCE_DATE_EPOCH"):
        build.epoch()


def test_no_file_has_suid_or_is_writable_by_others(node: Unpacked) -> None:
    for member in node.members:
        if member.issym():
            continue
        sticky = member.isdir() and member.mode & stat.S_ISVTX
        assert not member.mode & (stat.S_ISUID | stat.S_ISGID), member.name
        assert sticky or not member.mode & 0o022, member.name
        assert (member.uid, member.gid) == (0, 0), member.name
        assert member.isfile() or member.isdir() or member.issym(), member.name
    assert sum(1 for one in node.members if one.isfile()) > 1000


def test_links_lead_somewhere_inside(node: Unpacked) -> None:
    loose = []
    for member in node.members:
        if member.issym():
            # An absolute target replaces what stands before it.
            full = node.root / str(Path("/", member.name).parent / member.linkname).lstrip("/")
            if not full.exists() and not full.is_symlink():
                loose.append((member.name, member.linkname))
    # What a package links for scripts and caches that no container has.
    assert [one for one in loose if one[0].startswith(("usr/bin", "usr/sbin", "opt"))] == []


def test_the_configuration_starts_an_init_process(node: Unpacked) -> None:
    config = node.config["config"]
    assert config["Entrypoint"] == ["/usr/bin/tini", "--"]
    assert config["Cmd"] == ["calico-node", "run"]
    assert node.config["architecture"] in ("amd64", "arm64")
    assert all((node.root / f"opt/cni/bin/{name}").is_symlink() for name in PLUGINS)


def test_the_bill_names_every_package_and_wheel(node: Unpacked) -> None:
    bill = json.loads(node.image.sbom)
    named = {one["purl"].partition("?")[0] for one in bill["components"]}
    status = (node.root / "var/lib/dpkg/status").read_text()
    packages = [line.split()[1] for line in status.splitlines() if line.startswith("Package: ")]
    for name in packages:
        assert any(one.startswith(f"pkg:deb/debian/{name}@") for one in named), name
        assert (node.root / "usr/share/doc" / name / "copyright").exists(), name
    found = list(node.root.glob("usr/local/lib/python3*/dist-packages/*.dist-info/METADATA"))
    for path in found:
        values = message_from_string(path.read_text())
        assert f"pkg:pypi/{values['Name'].lower()}@{values['Version']}" in named
    assert len(packages) + len(found) == len(named) > 40
    assert (node.root / "usr/share/doc/muslin/node.cdx.json").read_bytes() == node.image.sbom
    assert all(len(one["hashes"][0]["content"]) == 64 for one in bill["components"])
