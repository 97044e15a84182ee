"""What `calicoctl version` says of the client; no imports, so that it costs nothing.

`CALICO` is the release of Calico whose data model we write. Calico's own `calicoctl`
compares it with the cluster's; ours stands beside it.
"""

CALICO = "v3.32.1"
MUSLIN = "v0.1.0"
