"""`node run`: this machine as a node, in a container or by the `calico-node` that is installed.

Which of the two: `--node-image` asks for a container. Without it, the `calico-node` of this
machine is run in our place, in the foreground, for a service manager to keep; where none is
installed, a container of the default image. Tested in `tests/calicoctl/test_node_run.py`.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as ConfigError
from pathlib import Path
from typing import NoReturn

from calicoctl.documents import text_of
from calicoctl.node import image, program
from calicoctl.node.image import RunSettings
from libcalico import apiconfig
from libcalico.clusterinfo import our_version
from libcalico.errors import InvalidValue, MuslinError

ENGINES = ("docker", "podman")
FELIX_FILE = Path("/etc/calico/felix.cfg")


def default_image() -> str:
    """The image of this version."""
    return f"muslin/calico-node:v{our_version()}"


def default_name() -> str:
    """The node's name where none is given."""
    return os.environ.get("NODENAME") or socket.gethostname().lower()


def run(settings: RunSettings, config: str | None, dryrun: bool) -> None:
    """Run the node, or print the command. Raises `MuslinError`; may never return."""
    settings.check()
    if settings.felix_config and not Path(settings.felix_config).is_file():
        raise InvalidValue("--felix-config", settings.felix_config, "there is no such file")
    store = image.datastore_environment(apiconfig.load(config, os.environ))
    _warn_of_foreign_address("--ip", settings.ip)
    _warn_of_foreign_address("--ip6", settings.ip6)
    if settings.image or program.find() is None:
        _container(settings, store, dryrun)
    else:
        _installed(settings, store, dryrun)


def _warn_of_foreign_address(flag: str, text: str) -> None:
    address = text.partition("/")[0]
    if address in ("", "autodetect", "none"):
        return
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        print(f"WARNING: {flag} {address} is on no interface of this machine", file=sys.stderr)


def _installed(settings: RunSettings, store: Mapping[str, str], dryrun: bool) -> None:
    variables = {**image.environment(settings), **store, "CALICO_LOG_DIR": settings.log_dir}
    if settings.felix_config and Path(settings.felix_config).absolute() != FELIX_FILE:
        variables |= felix_variables(
            text_of(Path(settings.felix_config).read_bytes(), settings.felix_config)
        )
    if dryrun:
        words = [f"{name}={text}" for name, text in variables.items() if name != "ETCD_PASSWORD"]
        print("Use the following command to start this node:\n")
        print(image.shown(["env", *words, program.NAME, "run"]) + "\n")
        _tell_of_password(store)
        return
    if os.geteuid() != 0:
        raise MuslinError("node run needs root: it programs routes and rules")
    program.replace_us(["run"], {**os.environ, **variables})


def _tell_of_password(store: Mapping[str, str]) -> None:
    if "ETCD_PASSWORD" in store:
        print("ETCD_PASSWORD is not shown: it must be in the environment of that command.")


def felix_variables(text: str) -> dict[str, str]:
    """The parameters of a felix.cfg as variables, for a felix that reads another file.

    Raises `InvalidValue` when the text is not of that form.
    """
    parser = ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text if text.lstrip().startswith("[") else f"[global]\n{text}")
    except ConfigError as error:
        reason = str(error).splitlines()[0]
        raise InvalidValue("--felix-config", reason, "sections and lines of name = value") from None
    return {
        f"FELIX_{name.upper()}": value
        for section in parser.sections()
        for name, value in parser.items(section)
    }


def engine() -> str:
    """The container engine of this machine; raises `MuslinError` when there is none."""
    for name in ENGINES:
        if shutil.which(name):
            return name
    raise MuslinError(
        f"neither {' nor '.join(ENGINES)} is installed here, and no {program.NAME} either:"
        " install one of them, or see the command with --dryrun"
    )


def _container(settings: RunSettings, store: Mapping[str, str], dryrun: bool) -> None:
    name = settings.image or default_image()
    if dryrun:
        # What would be run elsewhere can be asked for where no engine is.
        chosen = next((one for one in ENGINES if shutil.which(one)), ENGINES[0])
        print("Use the following command to start the calico-node container:\n")
        print(image.shown(image.command(chosen, name, settings, store)) + "\n")
        print("Use the following command to stop it:\n")
        print(image.shown([chosen, "stop", image.CONTAINER]) + "\n")
        _tell_of_password(store)
        return
    chosen = engine()
    if not os.environ.get("CALICO_CTL_CONTAINER"):
        prepare_machine()
    environ = {**os.environ}
    if "ETCD_PASSWORD" in store:
        environ["ETCD_PASSWORD"] = store["ETCD_PASSWORD"]
    subprocess.run([chosen, "rm", "-f", image.CONTAINER], capture_output=True, check=False)
    words = image.command(chosen, name, settings, store)
    print(f"Running the following command to start calico-node:\n\n{image.shown(words)}\n")
    sys.stdout.flush()
    if settings.init_system:
        _become(words, environ)
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MuslinError(
            f"{chosen} could not start {name} (status {done.returncode}): {done.stderr.strip()}"
        )
    print(f"The container {image.CONTAINER} is running: {done.stdout.strip()[:12]}")


def _become(words: list[str], environ: Mapping[str, str]) -> NoReturn:
    path = shutil.which(words[0])
    assert path is not None
    os.execve(path, words, dict(environ))


def prepare_machine(root: Path = Path("/proc/sys")) -> None:
    """Modules and settings that a node in a container needs of its host.

    What cannot be done is said and not fatal: the node's own check names what is missing.
    """
    if shutil.which("modprobe") is None:
        print("WARNING: modprobe is not installed: no modules were loaded", file=sys.stderr)
    else:
        done = subprocess.run(
            ["modprobe", "-a", *image.MODULES], capture_output=True, text=True, check=False
        )
        if done.returncode:
            print(f"WARNING: modprobe: {done.stderr.strip()}", file=sys.stderr)
    for name, value in image.SYSCTLS.items():
        try:
            if not (name.endswith("_max") and int((root / name).read_text()) >= int(value)):
                (root / name).write_text(value)
        except (OSError, ValueError) as error:
            print(f"WARNING: {name.replace('/', '.')}={value}: {error}", file=sys.stderr)
