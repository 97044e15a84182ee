"""What an image is made of, for scanners: CycloneDX 1.5, JSON."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from urllib.parse import quote

from manifests.image.debian import Package
from manifests.image.wheels import Wheel


def document(
    name: str, version: str, packages: list[Package], wheels: list[Wheel], when: int
) -> bytes:
    """The bill of materials of one image: the same input gives the same bytes."""
    components = [_debian(one) for one in packages] + [_wheel(one) for one in wheels]
    tree = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "container",
                "bom-ref": name,
                "name": name,
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": components,
        "dependencies": [
            {"ref": name, "dependsOn": [str(one["bom-ref"]) for one in components]},
        ],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(tree, sort_keys=True))
    return json.dumps({**tree, "serialNumber": f"urn:uuid:{serial}"}, indent=1).encode() + b"\n"


def _debian(one: Package) -> dict[str, object]:
    purl = f"pkg:deb/debian/{one.name}@{quote(one.version)}?arch={one.architecture}"
    text = f"/usr/share/doc/{one.name}/copyright"
    return {**_library(one, purl), "properties": [{"name": "license-text", "value": text}]}


def _wheel(one: Wheel) -> dict[str, object]:
    purl = f"pkg:pypi/{one.name.lower()}@{one.version}"
    return {**_library(one, purl), "licenses": [{"license": {"name": one.license}}]}


def _library(one: Package | Wheel, purl: str) -> dict[str, object]:
    return {
        "type": "library",
        "bom-ref": purl,
        "name": one.name,
        "version": one.version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": one.sha256}],
    }
