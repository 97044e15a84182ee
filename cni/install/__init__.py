"""Put the executable and its configuration where a container runtime looks for them.

A runtime watches the configuration directory and may start a plugin at any instant, also in
the middle of an installation, and an installer may be killed at any instant too.

  INST-1  Binaries come first, then credentials where a template asks for them, then the
          configuration; what it replaces is removed after it is there. Uninstalling goes the
          other way round.
  INST-2  Every file is written beside its place under a name that no runtime takes for a
          configuration or a plugin, synced, and renamed. What a killed installer left is swept
          by the next, under a lock that dies with its holder.
  INST-3  Nothing is ever SUID or SGID, executables are 0755, everything else is 0600. Links at
          the places we write are replaced, never followed.
  INST-4  A file that has the same bytes and mode already is left alone, so that a runtime
          which watches does not reload for nothing.
  INST-5  Where the package was installed without a compiler, the Python twin of the executable
          is installed, which needs an interpreter on the host.
  INST-6  No credential is written unless the template names one of its placeholders.

`files` writes, `binaries` and `configuration` say what, `credentials` what a template may ask
for, `settings` reads Calico's variables, `main` is `install-cni`, `keeping` its sidecar and the
daemon's part. Reference for operators: docs/install-cni.md.
Source: docs/reference/cni.md#installation, docs/reference/data-model.md#install-cni. Tested in
`tests/cni/test_install.py`, `tests/cni/test_install_killed.py` and
`tests/cni_conformance/test_install.py`.
"""

from __future__ import annotations

from pathlib import Path

from cni.install.binaries import (
    BUILT,
    NAMES,
    NoExecutable,
    install_binaries,
    own_interpreter,
    remove_binaries,
)
from cni.install.configuration import CONFLIST_NAME, default_conflist, encoded
from cni.install.files import opened
from cni.install.list_versions import NetworkList
from libcalico.process import paths

__all__ = [
    "BUILT",
    "CONFLIST_NAME",
    "NAMES",
    "NoExecutable",
    "default_conflist",
    "install",
    "install_binaries",
    "install_conflist",
    "own_interpreter",
    "uninstall",
]


def install(
    bin_dir: Path = paths.CNI_BIN,
    net_dir: Path = paths.CNI_NET,
    conflist: NetworkList | None = None,
    *,
    executable: Path = BUILT,
    twin: bool = False,
    interpreter: str = "",
) -> None:
    """Install both plugin names into `bin_dir`, then the conflist into `net_dir`.

    The directories are made where missing. May be repeated, also while plugins run. `twin`
    installs the Python twin even where there is an executable, for `interpreter` (a path on
    the host; ours unless given). Raises NoExecutable when there is nothing to install, and
    OSError; then the configuration is as it was.
    """
    install_binaries(bin_dir, executable, twin=twin, interpreter=interpreter)
    install_conflist(net_dir, default_conflist() if conflist is None else conflist)


def install_conflist(net_dir: Path, conflist: NetworkList) -> None:
    """Write `conflist` as 10-calico.conflist, 0600; raises OSError."""
    with opened(net_dir) as folder:
        folder.replace(CONFLIST_NAME, encoded(conflist), 0o600)


def uninstall(bin_dir: Path = paths.CNI_BIN, net_dir: Path = paths.CNI_NET) -> None:
    """Remove what `install` wrote, the configuration first (INS-12). Missing ones are fine."""
    if net_dir.is_dir():
        with opened(net_dir) as folder:
            folder.remove(CONFLIST_NAME)
    remove_binaries(bin_dir)
