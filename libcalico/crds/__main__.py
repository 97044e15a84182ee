"""`./run crds`: write manifests/crds; with `--check` say whether the files are current."""

from __future__ import annotations

import sys
from pathlib import Path

from libcalico.crds.document import HEAD, files

FOLDER = Path("manifests/crds")


def main(arguments: list[str]) -> int:
    """Write the files, or compare them with `--check`, in the repository's root."""
    expected = files()
    if "--check" not in arguments:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for old in _written().keys() - expected.keys():
            (FOLDER / old).unlink()
        for name, text in expected.items():
            (FOLDER / name).write_text(text)
        return 0
    there = _written()
    wrong = sorted(name for name in {*expected, *there} if expected.get(name) != there.get(name))
    for name in wrong:
        sys.stderr.write(f"{FOLDER / name} is not what the types say: ./run crds writes it\n")
    return 1 if wrong else 0


def _written() -> dict[str, str]:
    """The files that this command wrote; others may lie beside them."""
    texts = {path.name: path.read_text() for path in FOLDER.glob("*.yaml")}
    return {name: text for name, text in texts.items() if text.startswith(HEAD)}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
