"""Kubernetes 1.20 from Debian 12's source package, which holds all of its vendored tree.

Everything comes from Debian's archive through apt, which checks signatures: the source, Go 1.19 and
two Go libraries. Nothing is installed; packages are unpacked beside the sources. The build needs no
module proxy. Two things differ from the sources as they are: the OpenAPI definitions are generated
(the package leaves generated files out), and reflect2 and json-iterator are Debian's, since those
that are vendored predate Go 1.18.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

VERSION = "1.20.2"
RELEASE = "bookworm"
GO = "golang-1.19"
"""Of the same archive; the sources are of before modules, which this Go still builds."""
TAGS = "providerless"
"""Without the clouds' own libraries, which take longer than all the rest."""
LIBRARIES = {
    "golang-github-modern-go-reflect2-dev": "github.com/modern-go/reflect2",
    "golang-github-json-iterator-go-dev": "github.com/json-iterator/go",
}
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
ROOT = "k8s.io/kubernetes"
_DEFINED = re.compile(r"^\s*//\s*\+k8s:openapi-gen=", re.MULTILINE)
_STAGED = (
    *("api", "apimachinery", "apiextensions-apiserver", "apiserver", "kube-aggregator", "metrics"),
    *("kube-proxy", "kubelet", "kube-scheduler", "kube-controller-manager", "component-base"),
    *("cloud-provider", "controller-manager"),
)


class SourceError(Exception):
    """What apt, dpkg, tar or Go said."""


def build(names: Sequence[str], into: Path) -> None:
    """Put the programs into a folder; minutes, 3 GB while it lasts. Raises SourceError.

    What is downloaded and compiled is kept beside `into` until all is done, so an interrupted
    build goes on where it was.
    """
    work = into.parent / "work"
    work.mkdir(parents=True, exist_ok=True)
    source = _fetch(work)
    go = Go(work)
    _define_openapi(go, source, work)
    for name in names:
        if os.access(into / name, os.X_OK):
            continue
        began = time.monotonic()
        fresh = into / f".{name}.new"
        go("build", "-tags", TAGS, "-ldflags", _told(), "-o", str(fresh), f"{ROOT}/cmd/{name}")
        fresh.rename(into / name)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    shutil.rmtree(work)


# -- sources -----------------------------------------------------------------------------------


def _fetch(work: Path) -> Path:
    """Everything from the archive, unpacked; where the sources are."""
    source = work / "gopath/src" / ROOT
    if (work / "fetched").exists():
        return source
    downloads = work / "downloads"
    downloads.mkdir(exist_ok=True)
    ask = Apt(work)
    ask("update", "-qq", where=downloads)
    ask("source", "-qq", "--download-only", "kubernetes", where=downloads)
    ask("download", "-qq", f"{GO}-go", f"{GO}-src", *LIBRARIES, where=downloads)
    for package in sorted(downloads.glob("*.deb")):
        _run(["dpkg-deb", "-x", str(package), str(work / "debian")], where=work)
    archives = sorted(downloads.glob("kubernetes_*.orig.tar.*"))
    if not archives:
        raise SourceError("the source package of Kubernetes has no archive of its sources")
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    _run(["tar", "-xf", str(archives[-1]), "-C", str(source), "--strip-components=1"], where=work)
    for name in LIBRARIES.values():
        theirs, ours = work / "debian/usr/share/gocode/src" / name, source / "vendor" / name
        for old in ours.glob("*.go"):
            old.unlink()
        for new in theirs.iterdir():
            if new.is_file() and not new.name.endswith("_test.go"):
                shutil.copy(new, ours / new.name)
    (work / "fetched").touch()
    return source


class Apt:
    """apt-get with lists of its own: sources are asked for that the machine's may not name."""

    def __init__(self, work: Path) -> None:
        said = _run(
            [
                *("apt-get", "indextargets", "--format", "$(SITE)"),
                *("Created-By: Packages", f"Codename: {RELEASE}", "Origin: Debian"),
            ],
            where=work,
        )
        mirror = (said.split() or ["http://deb.debian.org/debian"])[0]
        (work / "lists/partial").mkdir(parents=True, exist_ok=True)
        (work / "archives/partial").mkdir(parents=True, exist_ok=True)
        lines = [
            f"{kind} [signed-by={KEYS}] {mirror} {RELEASE} main" for kind in ("deb", "deb-src")
        ]
        (work / "sources.list").write_text("\n".join(lines) + "\n")
        options = {
            "Dir::Etc::SourceList": work / "sources.list",
            "Dir::Etc::SourceParts": os.devnull,
            "Dir::State::Lists": work / "lists",
            "Dir::Cache": work,
            "APT::Sandbox::User": "root",
        }
        self._options = [word for name, at in options.items() for word in ("-o", f"{name}={at}")]

    def __call__(self, *words: str, where: Path) -> None:
        _run(["apt-get", *self._options, *words], where=where)


# -- the build ---------------------------------------------------------------------------------


class Go:
    """Debian's go command in the sources, as a tree of before modules."""

    def __init__(self, work: Path) -> None:
        self.program = work / "debian/usr/lib/go-1.19/bin/go"
        self.where = work / "gopath/src" / ROOT
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(work),
            "GO111MODULE": "off",
            "GOFLAGS": "",
            "GOPATH": str(work / "gopath"),
            "GOCACHE": str(work / "compiled"),
            "CGO_ENABLED": "0",
        }

    def __call__(self, *words: str) -> None:
        _run([str(self.program), *words], where=self.where, environment=self.environment)


def _define_openapi(go: Go, source: Path, work: Path) -> None:
    """What the API server tells of its types; the source package leaves it out."""
    made = source / "pkg/generated/openapi/zz_generated.openapi.go"
    if made.exists() and made.stat().st_size:
        return
    generator = work / "openapi-gen"
    go("build", "-o", str(generator), f"{ROOT}/vendor/k8s.io/kube-openapi/cmd/openapi-gen")
    packages = sorted(
        {
            name
            for top, prefix in (
                *((f"staging/src/k8s.io/{one}", f"vendor/k8s.io/{one}") for one in _STAGED),
                ("pkg", "pkg"),
                ("cmd", "cmd"),
            )
            for name in _defining(source / top, f"{ROOT}/{prefix}")
        }
    )
    _run(
        [
            *(str(generator), "-O", "zz_generated.openapi"),
            *("-h", "hack/boilerplate/boilerplate.generatego.txt"),
            *("-p", f"{ROOT}/pkg/generated/openapi", "-i", ",".join(packages)),
            *("-r", os.devnull, "--output-base", str(work / "gopath/src")),
        ],
        where=source,
        environment={**go.environment, "PATH": f"{go.program.parent}:{os.environ['PATH']}"},
    )


def _defining(top: Path, prefix: str) -> Iterator[str]:
    """The packages below a folder whose types are to be told of."""
    for path in top.rglob("*.go"):
        if path.name.startswith("zz_generated"):
            continue
        if _DEFINED.search(path.read_text(errors="replace")):
            inside = path.parent.relative_to(top).as_posix()
            yield prefix if inside == "." else f"{prefix}/{inside}"


def _told() -> str:
    """What the linker tells the programs of their version: they compare it."""
    major, minor, _ = VERSION.split(".")
    words = ["-s", "-w"]
    for package in ("component-base/version", "client-go/pkg/version"):
        base = f"{ROOT}/vendor/k8s.io/{package}"
        for name, value in (
            ("gitVersion", f"v{VERSION}"), ("gitMajor", major), ("gitMinor", minor),
        ):  # fmt: skip
            words += ["-X", f"{base}.{name}={value}"]
    return " ".join(words)


def _run(
    command: Sequence[str], *, where: Path, environment: Mapping[str, str] | None = None
) -> str:
    """Run a program; what it wrote. Raises SourceError with its words."""
    done = subprocess.run(
        command,
        cwd=where,
        env={**(os.environ if environment is None else environment), "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SourceError(f"{' '.join(command[:2])}: {done.stderr.strip()[-2000:]}")
    return done.stdout
