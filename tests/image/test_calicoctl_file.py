"""calicoctl as one file, on a machine that has python3 and a shell and nothing else."""

from __future__ import annotations

import ast
import io
import os
import stat
import subprocess
import zipfile
from pathlib import Path

import pytest

from manifests.image import build, tree
from manifests.image.contents import CONTROLLERS
from manifests.image.wheels import ROOT
from manifests.single import build as single
from tests.image.conftest import FULL
from tests.image.test_inside import KUBECONFIG

USER = "65532:65532"
COMMAND = ("calicoctl", "version", "--client")
SAID = "Client Version:"


@pytest.fixture(scope="module")
def content(fetched: None) -> bytes:
    """The file, built."""
    return single.calicoctl()


@pytest.fixture(scope="module")
def bare(content: bytes, fetched: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of Debian's python3-minimal and the library, and the one file put to use."""
    root = tmp_path_factory.mktemp("bare")
    root.chmod(0o755)
    base = build.trees(CONTROLLERS, ROOT, build.EPOCH)[0][0]
    tree.write({**base, "var/cache": tree.directory()}, root)
    # gRPC wants it; every machine has one.
    os.mknod(root / "dev/urandom", stat.S_IFCHR | 0o666, os.makedev(1, 9))
    put(root, content)
    return root


def put(root: Path, content: bytes) -> None:
    """`cp` and `chmod a+x`, in one step."""
    fresh = root / "usr/bin/.calicoctl"
    fresh.write_bytes(content)
    fresh.chmod(0o755)
    fresh.replace(root / "usr/bin/calicoctl")


def command(root: Path, *words: str, user: str = "0:0", **variables: str) -> list[str]:
    """A command line that runs in the bare machine, with these variables and no others."""
    given = [f"{name}={value}" for name, value in {"PATH": "/usr/bin", **variables}.items()]
    return ["chroot", f"--userspec={user}", str(root), "/usr/bin/env", "-i", *given, *words]


def run(
    root: Path, *words: str, user: str = "0:0", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run one."""
    return subprocess.run(
        command(root, *words, user=user, **variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def folders(place: Path) -> list[str]:
    """What lies there, `.new-` rests included."""
    return sorted(path.name for path in place.iterdir())


def clean(root: Path) -> None:
    """The machine before any start."""
    for place in (root / "var/cache/calicoctl", *root.glob("tmp/calicoctl-*"), root / "home"):
        subprocess.run(["rm", "-rf", place], check=True)


def test_every_module_is_inside(bare: Path) -> None:
    program = (
        "import sys, pkgutil, importlib, glob;"
        "sys.path.insert(0, glob.glob('/var/cache/calicoctl/*-cp*')[0]);"
        "import calicoctl, libcalico, ipam;"
        "[importlib.import_module(m.name) for p in (calicoctl, libcalico, ipam)"
        " for m in pkgutil.walk_packages(p.__path__, p.__name__ + '.')];"
        "print(sorted(n for n in sys.modules if n in ('grpc', 'msgspec', 'yaml', 'click')))"
    )
    assert SAID in run(bare, *COMMAND).stdout
    done = run(bare, "python3", "-IS", "-c", program)
    assert done.stdout == "['click', 'grpc', 'msgspec', 'yaml']\n", done.stderr


def test_it_speaks_to_the_datastore(bare: Path) -> None:
    """gRPC's extension loads: nobody listens on port 1, and the sentence says so."""
    done = run(
        bare,
        "calicoctl",
        "get",
        "nodes",
        DATASTORE_TYPE="etcdv3",
        ETCD_ENDPOINTS="http://127.0.0.1:1",
    )
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr


def test_root_unpacks_into_var_cache_once(bare: Path) -> None:
    clean(bare)
    assert SAID in run(bare, *COMMAND, HOME="/tmp").stdout
    place = bare / "var/cache/calicoctl"
    (name,) = folders(place)
    made = (place / name).stat().st_ino
    assert SAID in run(bare, *COMMAND, HOME="/tmp").stdout
    assert (place / name).stat().st_ino == made
    assert (
        stat.S_IMODE(place.stat().st_mode) == stat.S_IMODE((place / name).stat().st_mode) == 0o700
    )


def test_a_user_unpacks_into_the_home(bare: Path) -> None:
    clean(bare)
    home = bare / "home/ada"
    home.mkdir(parents=True)
    os.chown(home, 65532, 65532)
    assert SAID in run(bare, *COMMAND, user=USER, HOME="/home/ada").stdout
    assert len(folders(home / ".cache/calicoctl")) == 1
    assert not list(bare.glob("tmp/calicoctl-*"))


def test_a_home_that_cannot_be_written_is_no_hindrance(bare: Path) -> None:
    clean(bare)
    for _ in range(2):
        assert SAID in run(bare, *COMMAND, user=USER, HOME="/nonexistent").stdout
    (place,) = bare.glob("tmp/calicoctl-*")
    assert place.name == "calicoctl-65532"
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert len(folders(place)) == 1


@pytest.mark.parametrize("plant", ["another's folder", "open folder", "link"])
def test_code_planted_by_others_does_not_run(bare: Path, plant: str) -> None:
    """ONE-1: somebody was first at the place whose name is known."""
    clean(bare)
    assert SAID in run(bare, *COMMAND, user=USER, HOME="/nonexistent").stdout
    (place,) = bare.glob("tmp/calicoctl-65532")
    (name,) = folders(place)
    main = place / name / "calicoctl/main.py"
    main.write_text("raise SystemExit('planted')\n")
    subprocess.run(["rm", "-rf", main.parent / "__pycache__"], check=True)
    assert "planted" in run(bare, *COMMAND, user=USER, HOME="/nonexistent").stderr
    if plant == "another's folder":
        os.chown(place, 1000, 1000)
    elif plant == "open folder":
        place.chmod(0o777)
    else:
        place.rename(bare / "tmp/elsewhere")
        place.symlink_to("elsewhere")
    done = run(bare, *COMMAND, user=USER, HOME="/nonexistent")
    assert SAID in done.stdout, done.stderr
    # What was unpacked for this start alone is gone.
    assert folders(bare / "tmp") == sorted(
        ["calicoctl-65532", *(["elsewhere"] if plant == "link" else [])]
    )
    subprocess.run(["rm", "-rf", place, bare / "tmp/elsewhere"], check=True)


def test_several_first_starts_at_once(bare: Path) -> None:
    """ONE-2."""
    clean(bare)
    started = [
        subprocess.Popen(command(bare, *COMMAND), stdout=subprocess.PIPE, text=True)
        for _ in range(12 if FULL else 4)
    ]
    assert all(SAID in one.communicate(timeout=120)[0] for one in started)
    assert len(folders(bare / "var/cache/calicoctl")) == 1


def test_an_upgrade_mixes_nothing(bare: Path, content: bytes) -> None:
    """ONE-3: the file is replaced; the old folder serves who still runs, then goes."""
    clean(bare)
    run(bare, *COMMAND)
    (old,) = folders(bare / "var/cache/calicoctl")
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        inner = {n: opened.read(n) for n in opened.namelist() if n == "common" or n[:2] == "cp"}
    held = io.BytesIO(inner["common"])
    with zipfile.ZipFile(held, "a") as common:
        text = common.read("calicoctl/main.py").decode()
        start = "def main() -> None:\n"
        common.writestr("calicoctl/main.py", text.replace(start, f"{start}    print('newer')\n", 1))
    put(bare, single.packed({**inner, "common": held.getvalue()}, build.EPOCH))
    assert run(bare, *COMMAND).stdout.startswith("newer\n")
    both = folders(bare / "var/cache/calicoctl")
    assert len(both) == 2
    assert old in both
    os.utime(bare / "var/cache/calicoctl" / old, (0, 0))
    put(bare, content)
    assert SAID in run(bare, *COMMAND).stdout
    put(bare, single.packed({**inner, "more": b""}, build.EPOCH))
    os.utime(bare / "var/cache/calicoctl" / both[1 - both.index(old)], (0, 0))
    run(bare, *COMMAND)
    assert both[1 - both.index(old)] not in folders(bare / "var/cache/calicoctl")
    put(bare, content)


def test_a_kubeconfig_that_needs_the_package_kubernetes_says_so(bare: Path) -> None:
    (bare / "tmp" / "kubeconfig").write_text(KUBECONFIG)
    variables = {"DATASTORE_TYPE": "kubernetes", "KUBECONFIG": "/tmp/kubeconfig"}
    done = run(bare, "calicoctl", "get", "nodes", **variables)
    assert done.returncode == 1
    assert "user 'jane': users[].user.exec: needs the Python package `kubernetes`" in done.stderr


def test_under_its_other_name_it_is_a_plugin_of_kubectl(bare: Path) -> None:
    (bare / "usr/bin/kubectl-calico").symlink_to("calicoctl")
    assert "kubectl calico" in run(bare, "kubectl-calico", "--help").stdout


def test_an_old_python_can_read_the_sentence() -> None:
    text = (ROOT / "manifests/single/boot.py").read_text()
    ast.parse(text, feature_version=(3, 5))
    assert 'f"' not in text
