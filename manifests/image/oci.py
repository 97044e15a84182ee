"""An image as one file: an OCI image layout in a tar archive (OCI image specification 1.1)."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

_OCI = "application/vnd.oci.image"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer: the digest of its tar archive, and the archive as gzip has it."""

    diff_id: str
    packed: bytes


@dataclass(frozen=True, slots=True)
class Settings:
    """What a container of the image starts with (OCI image configuration)."""

    entrypoint: list[str]
    command: list[str]
    environment: dict[str, str]
    user: str
    labels: dict[str, str] = field(default_factory=dict)


def digest(content: bytes) -> str:
    """The digest by which OCI names content."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def archive(name: str, layers: list[Layer], settings: Settings, when: int) -> tuple[str, bytes]:
    """The digest of the image's manifest, and the file that `ctr images import` takes."""
    machine = MACHINES[platform.machine()]
    created = datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    config = _json(
        created=created,
        architecture=machine,
        os="linux",
        config={
            "User": settings.user,
            "Env": [f"{name}={value}" for name, value in settings.environment.items()],
            "Entrypoint": settings.entrypoint,
            "Cmd": settings.command,
            "WorkingDir": "/",
            "Labels": settings.labels,
        },
        rootfs={"type": "layers", "diff_ids": [one.diff_id for one in layers]},
        history=[{"created": created, "created_by": "run build image"} for _ in layers],
    )
    manifest = _json(
        schemaVersion=2,
        mediaType=f"{_OCI}.manifest.v1+json",
        config=_descriptor("config.v1+json", config),
        layers=[_descriptor("layer.v1.tar+gzip", one.packed) for one in layers],
    )
    named = {
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
    }
    entry = {
        **_descriptor("manifest.v1+json", manifest),
        "platform": {"architecture": machine, "os": "linux"},
        "annotations": named,
    }
    files = {
        "oci-layout": _json(imageLayoutVersion="1.0.0"),
        "index.json": _json(schemaVersion=2, mediaType=f"{_OCI}.index.v1+json", manifests=[entry]),
    }
    for blob in (manifest, config, *(one.packed for one in layers)):
        files[f"blobs/sha256/{digest(blob).partition(':')[2]}"] = blob
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as packed:
        for path, content in files.items():
            info = tarfile.TarInfo(path)
            info.size, info.mtime = len(content), when
            packed.addfile(info, io.BytesIO(content))
    return digest(manifest), out.getvalue()


def _json(**tree: Any) -> bytes:
    return json.dumps(tree, sort_keys=True).encode()


def _descriptor(kind: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": f"{_OCI}.{kind}", "digest": digest(content), "size": len(content)}
