"""What `calicoctl version` says of the client; no imports, so that it costs nothing.

`CALICO` is the release of Calico whose data model we write. Calico's own `calicoctl`
compares it with the cluster's; ours stands beside it.
Tested in tests/calicoctl/test_version.py.
"""

CALICO = "v3.33.1"
MUSLIN = "v0.1.0"


def client_text() -> str:
    """The client's two lines, a newline after each
    (docs/reference/data-model.md#calicoctl-version)."""
    return f"Client Version:    {CALICO}\nGit commit:        muslin-{MUSLIN}\n"
