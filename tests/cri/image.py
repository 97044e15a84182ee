"""The sandbox image, made of one static program and nothing else: no registry is asked.

`pack` makes any such image of files and links: an OCI image layout in a tar file (OCI image
specification 1.0) with a layer, its configuration, a manifest, and an index that carries the name
under which containerd keeps it.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

NAME = "localhost/muslin-pause:1"
SOURCE = Path(__file__).with_name("pause.c")
_OCI = "application/vnd.oci.image"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def build(folder: Path) -> Path:
    """Compile the program and pack the image; its file. Raises CalledProcessError."""
    program = folder / "pause"
    subprocess.run(["musl-gcc", "-Os", "-static", "-s", "-o", program, SOURCE], check=True)
    return pack(folder / "pause.tar", NAME, {"pause": (program.read_bytes(), 0o755)}, ["/pause"])


def pack(
    archive: Path,
    name: str,
    files: Mapping[str, tuple[bytes, int]],
    entry: Sequence[str],
    links: Mapping[str, str] | None = None,
) -> Path:
    """Pack an image: files with their modes, symbolic links, and the program it starts."""
    layer = _tar(files, links or {})
    digest, size = _digest(layer), len(layer)
    config = _json(
        architecture=_MACHINES[platform.machine()],
        os="linux",
        config={"Entrypoint": list(entry)},
        rootfs={"type": "layers", "diff_ids": [digest]},
    )
    manifest = _json(
        schemaVersion=2,
        mediaType=f"{_OCI}.manifest.v1+json",
        config=_descriptor("config.v1+json", config),
        layers=[{"mediaType": f"{_OCI}.layer.v1.tar", "digest": digest, "size": size}],
    )
    named = {"io.containerd.image.name": name}
    index = _json(
        schemaVersion=2,
        manifests=[{**_descriptor("manifest.v1+json", manifest), "annotations": named}],
    )
    blobs = {"oci-layout": _json(imageLayoutVersion="1.0.0"), "index.json": index}
    for blob in (layer, config, manifest):
        blobs[f"blobs/sha256/{_digest(blob).partition(':')[2]}"] = blob
    archive.write_bytes(_tar({where: (content, 0o644) for where, content in blobs.items()}, {}))
    return archive


def _tar(files: Mapping[str, tuple[bytes, int]], links: Mapping[str, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
        for name, target in links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return out.getvalue()


def _json(**tree: Any) -> bytes:
    return json.dumps(tree).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _descriptor(kind: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": f"{_OCI}.{kind}", "digest": _digest(content), "size": len(content)}
