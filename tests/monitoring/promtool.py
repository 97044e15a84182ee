"""promtool of Debian's package prometheus: the one installed, or the one file of the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from manifests.image import cache
from tests.tiers import FULL_SIZE


def find() -> str | None:
    """Its path; fetched at full size alone, because the package is large."""
    if found := shutil.which("promtool"):
        return found
    kept = cache.folder("promtool") / "promtool"
    if not kept.exists() and os.environ.get(FULL_SIZE) and shutil.which("apt-get"):
        _fetch(kept)
    return str(kept) if kept.exists() else None


def _fetch(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", "prometheus"]
        if subprocess.run(command, cwd=folder, check=False).returncode != 0:
            return
        (package,) = Path(folder).glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", package, Path(folder, "x")], check=True)
        Path(folder, "x/usr/bin/promtool").replace(target)
