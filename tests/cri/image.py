"""The sandbox image, made of one static program and nothing else: no registry is asked.

An OCI image layout in a tar file (OCI image specification 1.0): a layer with `/pause`, its
configuration, a manifest, and an index that carries the name under which containerd keeps it.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from pathlib import Path
from typing import Any

NAME = "localhost/muslin-pause:1"
SOURCE = Path(__file__).with_name("pause.c")
_OCI = "application/vnd.oci.image"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def build(folder: Path) -> Path:
    """Compile the program and pack the image; its file. Raises CalledProcessError."""
    program, archive = folder / "pause", folder / "pause.tar"
    subprocess.run(["musl-gcc", "-Os", "-static", "-s", "-o", program, SOURCE], check=True)
    layer = _tar({"pause": (program.read_bytes(), 0o755)})
    digest, size = _digest(layer), len(layer)
    config = _json(
        architecture=_MACHINES[platform.machine()],
        os="linux",
        config={"Entrypoint": ["/pause"]},
        rootfs={"type": "layers", "diff_ids": [digest]},
    )
    manifest = _json(
        schemaVersion=2,
        mediaType=f"{_OCI}.manifest.v1+json",
        config=_descriptor("config.v1+json", config),
        layers=[{"mediaType": f"{_OCI}.layer.v1.tar", "digest": digest, "size": size}],
    )
    named = {"io.containerd.image.name": NAME}
    index = _json(
        schemaVersion=2,
        manifests=[{**_descriptor("manifest.v1+json", manifest), "annotations": named}],
    )
    files = {"oci-layout": _json(imageLayoutVersion="1.0.0"), "index.json": index}
    for blob in (layer, config, manifest):
        files[f"blobs/sha256/{_digest(blob).partition(':')[2]}"] = blob
    archive.write_bytes(_tar({name: (content, 0o644) for name, content in files.items()}))
    return archive


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def _json(**tree: Any) -> bytes:
    return json.dumps(tree).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _descriptor(kind: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": f"{_OCI}.{kind}", "digest": _digest(content), "size": len(content)}
