"""Files that go into an archive, and the secrets that they give away about everything else.

Tested in tests/calicoctl/test_diags.py.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from calicoctl.diags.archive import MOST_BYTES, Archive
from calicoctl.diags.redact import harvest, yaml_documents
from calicoctl.diags.secret_text import is_secret_name
from libcalico.apiconfig import DatastoreConfig

MOST_FILES = 500
_DOCUMENTS = re.compile(r"(\.(json|ya?ml|conf|conflist|cfg|kubeconfig)|kubeconfig)(\.\w+)?$")
_PROCESSES = re.compile(rb"calico|kube-proxy|kubelet|bird|exabgp|etcd|muslin")


def add_tree(archive: Archive, folder: Path, name: str) -> None:
    """Every file below a folder, the newest first where there are too many."""
    try:
        files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
        files.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError as error:
        archive.missing(name, str(error), str(folder))
        return
    if not files:
        why = "the folder is empty" if folder.is_dir() else "there is no such folder"
        archive.missing(name, why, str(folder))
    for path in files[:MOST_FILES]:
        add_file(archive, path, f"{name}/{path.relative_to(folder)}")
    if len(files) > MOST_FILES:
        archive.missing(name, f"{len(files) - MOST_FILES} older files left out", str(folder))


def add_file(archive: Archive, path: Path, name: str) -> None:
    """One file: documents by their structure, everything else as text; no key files."""
    try:
        text = content(path)
    except (OSError, EOFError) as error:
        archive.missing(name, str(error), str(path))
        return
    if "\0" in text[:4096]:
        archive.missing(name, "not a text", str(path))
        return
    form = "document" if _DOCUMENTS.search(path.name) else "text"
    archive.add(
        name.removesuffix(".gz"),
        text,
        "document" if form == "document" else "text",
        source=str(path),
    )


def content(path: Path) -> str:
    """The end of a text file, unpacked if it is gzip."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        size = file.seek(0, os.SEEK_END)
        file.seek(0 if packed or size <= MOST_BYTES else size - MOST_BYTES)
        raw = file.read()
    return (gzip.decompress(raw) if packed else raw).decode(errors="replace")


def environments(proc: Path = Path("/proc")) -> dict[str, dict[str, str]]:
    """`<name>-<pid>` to the environment of every process that has to do with the network."""
    by_process = {}
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            title = (entry / "cmdline").read_bytes()
            if not _PROCESSES.search(title):
                continue
            pairs = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        name = os.path.basename(title.split(b"\0")[0].split(b" ")[0]).decode(errors="replace")
        variables = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        by_process[f"{name or 'process'}-{entry.name}"] = variables
    return by_process


def secrets(
    config: DatastoreConfig | None,
    environs: Iterable[Mapping[str, str]],
    documents: Iterable[Path],
) -> Iterator[str]:
    """Every secret value that settings, environments, key files and documents hold."""
    key_files: set[str] = set()
    if config is not None:
        yield from (config.password, config.key, config.k8s_token, config.kubeconfig_inline)
        key_files |= {config.key_file, config.k8s_key_file}
    for environ in environs:
        for name, value in environ.items():
            if is_secret_name(name) and not value.startswith("/"):
                yield value
            elif name.upper().endswith(("KEY_FILE", "KEYFILE", "PASSWORD_FILE", "TOKEN_FILE")):
                key_files.add(value)
    for named in key_files - {""}:
        try:
            yield Path(named).read_text(errors="replace")
        except OSError:
            continue
    for path in documents:
        try:
            yield from _of_document(content(path))
        except (OSError, EOFError):
            continue


def _of_document(text: str) -> Iterator[str]:
    try:
        trees = [json.loads(text)]
    except ValueError:
        trees = yaml_documents(text) or []
    for tree in trees:
        yield from harvest(tree)
