"""`calico-node cleanup`: leave a node that is given up as it was before Muslin came.

It removes rules, chains and sets of every back end, portmap's empty ones too; routes of protocol
109; tunnel devices; the CNI plugin, its configuration, and the plugins of others that came with it;
sockets, status and state. Logs, sysctls, kernel modules and objects in the datastore stay. A thing
that is gone already is no error, so cleanup can run again. Tested in
tests/e2e/test_cleanup.py, tests/node/test_cleanup.py, tests/k8s/test_removal.py.
"""

from __future__ import annotations

import errno
import shutil
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from cni.install import binaries, configuration
from cni.install.settings import settings_from
from felix import ROUTE_PROTOCOL
from felix.dataplane.devices.mtu import IPIP, VXLAN, VXLAN_V6
from felix.dataplane.rules import backend_removal
from libcalico.errors import MuslinError
from libcalico.process import paths
from linux import addresses, links, routes
from linux.links import Link
from linux.netlink import Socket
from node import hostports

LOCK_WAIT = 10.0
WORKLOAD = "cali"
AGENTS = {paths.NODE_SOCKET: "calico-felix", paths.CNI_SOCKET: "calico-cni"}
Say = Callable[[str], None]


async def clean(
    environ: Mapping[str, str], *, force: bool = False, keep_cni: bool = False, say: Say = print
) -> None:
    """Remove everything, and say a line of each. Raises MuslinError: refused, or not removed."""
    with Socket() as sock:
        attached = [link for link in links.dump(sock) if link.name.startswith(WORKLOAD)]
        agents = running()
        refuse(agents, attached, force)
        if not keep_cni:
            # First, so that no new pod is given to a plugin that is about to go.
            remove_plugin(environ, say)
        failures = await backend_removal.remove_everything(LOCK_WAIT)
        if not keep_cni:
            failures |= await hostports.remove(LOCK_WAIT, say)
        say("rules, chains and sets: none of ours is left" if not failures else "rules: see below")
        remove_routes(sock, say)
        remove_links(sock, attached, say)
    for folder in (paths.RUN, paths.LIB):
        remove_files(folder, say)
    if agents:
        # The sockets are gone with the files: the next call would not see the agents.
        names = " and ".join(agents)
        say(f"still running, will write everything again: {names}; end that, then clean up again")
    if failures:
        reasons = "; ".join(f"{name}: {why}" for name, why in failures.items())
        raise MuslinError(f"not removed: {reasons}")


def refuse(agents: Iterable[str], attached: Iterable[Link], force: bool) -> None:
    """Raise MuslinError where something still needs what would be removed, unless `force`. Pure."""
    obstacles = [f"{name} runs" for name in agents]
    if pods := sorted(link.name for link in attached):
        more = f" and {len(pods) - 5} more" if len(pods) > 5 else ""
        obstacles.append(f"{len(pods)} pod(s) are attached: {', '.join(pods[:5])}{more}")
    if obstacles and not force:
        raise MuslinError(
            f"{'; '.join(obstacles)}: drain the node and delete the DaemonSet first, or use --force"
        )


def running() -> list[str]:
    """The agents that answer on their sockets."""
    return [name for path, name in AGENTS.items() if _answers(path)]


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trying:
        trying.settimeout(1.0)
        try:
            trying.connect(str(path))
        except TimeoutError:
            return True
        except OSError:
            return False
        return True


def remove_plugin(environ: Mapping[str, str], say: Say) -> None:
    """Remove the configuration, the credentials, then the executables that only we brought."""
    settings = settings_from(environ, parts=())
    try:
        configuration.remove(settings)
        for folder in settings.bin_dirs:
            binaries.remove_binaries(folder)
    except OSError as error:
        raise MuslinError(f"the CNI plugin cannot be removed: {error}") from None
    folders = ", ".join(map(str, (settings.net_dir, *settings.bin_dirs)))
    say(f"CNI plugin and configuration: none of ours is left in {folders}")


def remove_routes(sock: Socket, say: Say) -> None:
    """Remove every route of our protocol number. Raises KernelError when the socket fails."""
    own_routes = routes.dump(sock, protocol=ROUTE_PROTOCOL)
    failed = sock.transact_all([routes.delete(route) for route in own_routes])
    for index, result in failed.items():
        if result.errno != errno.ESRCH:
            say(f"route {own_routes[index].dst}: {result.error()}")
    say(f"routes of protocol {ROUTE_PROTOCOL}: {len(own_routes) - len(failed)} removed")


def remove_links(sock: Socket, attached: Iterable[Link], say: Say) -> None:
    """Remove the links of pods and tunnels; the kernel's tunl0 loses its addresses, and is down."""
    names = [link.name for link in attached]
    names += [name for name in (VXLAN, VXLAN_V6) if links.is_there(sock, name)]
    for name in names:
        if (error := sock.request(links.delete(name)).error()) is not None:
            say(f"{name}: {error}")
        else:
            say(f"{name}: removed")
    tunnel = links.get(sock, IPIP)
    if tunnel is None:
        return
    own = [one.interface for one in addresses.dump(sock, tunnel.index)]
    if own or tunnel.up:
        messages = [addresses.delete(tunnel.index, each) for each in own]
        sock.transact([*messages, links.set_down(IPIP)])
        say(f"{IPIP}: without address, and down")


def remove_files(folder: Path, say: Say) -> None:
    """Empty a directory, which itself may be a mount of a container."""
    if not folder.is_dir():
        return
    for entry in sorted(folder.iterdir()):
        try:
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink(missing_ok=True)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise MuslinError(f"{entry}: cannot be removed: {error.strerror}") from None
    say(f"{folder}: empty")
