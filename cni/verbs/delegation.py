"""Another plugin gives the addresses: `host-local`, `static`, `dhcp`.

Such a plugin keeps its state on the host's disk and expects the host's paths, so it is run by
the executable there (`exec` frames), not by the daemon, which may live in a container. It gets
the caller's environment and the complete configuration; changed are only `IgnoreUnknown=1` in
CNI_ARGS and `usePodCidr`, which becomes the node's podCIDR.

Invariants (tests/cni/test_delegation.py):
  CNI-60  What a delegate gave is taken back by its DEL when the ADD fails afterwards or ends
          while the delegate runs, and when the delegate itself fails.
  CNI-61  DEL needs no datastore: `host-local` releases by container, so any subnet serves.

Source: docs/reference/cni.md#delegation-to-ipam, docs/reference/data-model.md#cni-configuration
(`ipam.subnet`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Protocol

import msgspec

from cni.request.environment import delegate_args
from cni.request.errors import CNIError, Code
from cni.request.request import Request
from cni.request.result import Result
from cni.request.result_decoding import decode
from cni.socket import protocol
from cni.veth.pod_end import EVERYTHING
from libcalico.errors import NO_DOCUMENT
from libcalico.model.keys import IPNetwork

log = logging.getLogger(__name__)

OWN = ("", "calico-ipam")
POD_CIDR = {"usepodcidr": 4, "usepodcidripv6": 6}
ANY = {4: "0.0.0.0/0", 6: "::/0"}
SECONDS = 30.0


class Line(Protocol):
    """The executable at the other end of a call."""

    async def run(self, message: protocol.Exec) -> protocol.ExecResult:
        """Have the executable run a plugin on the host. Raises CNIError 11 when it is gone."""


def is_delegated(request: Request) -> bool:
    """Whether another plugin gives the addresses of this network."""
    return request.config.ipam.type not in OWN


@dataclass(frozen=True, slots=True)
class Delegate:
    """The IPAM plugin of one call. `pod_cidrs` are the node's, empty where it has none."""

    line: Line
    request: Request
    pod_cidrs: Sequence[str] = ()

    async def add(self) -> Result:
        """Return its addresses, routes and DNS; raises its error after its DEL (CNI-60)."""
        config = self.configured()
        try:
            result = decode(await self._call("ADD", config), self.request.config.result_version)
            if not result.ips:
                raise CNIError(Code.CALICO, "IPAM plugin returned missing IP config")
        except CNIError as error:
            try:
                await self.delete()
            except CNIError as left:
                raise CNIError(
                    error.code, error.msg, f"{error.details}; its DEL: {left}".lstrip("; ")
                ) from error
            raise
        return result

    async def delete(self) -> None:
        """Have it release the addresses; raises its error."""
        await self._call("DEL", with_pod_cidr(self.request.config.document, ANY.__getitem__))

    async def check(self) -> None:
        """Run its CHECK; raises its error."""
        await self._call("CHECK", self.configured())

    async def status(self) -> None:
        """Run its STATUS; raises its error while it could not serve an ADD."""
        await self._call("STATUS", self.request.config.document)

    async def collect(self) -> None:
        """Run its GC with the runtime's list; raises its error, unless it knows no GC (GC-05)."""
        try:
            await self._call("GC", self.request.config.document)
        except CNIError as error:
            if error.code not in (Code.INCOMPATIBLE_VERSION, Code.INVALID_ENVIRONMENT):
                raise
            log.warning("%s does not know GC: %s", self.request.config.ipam.type, error)

    def configured(self) -> dict[str, object]:
        """Its configuration; raises CNIError where the node lacks a podCIDR that it asks for."""
        return with_pod_cidr(self.request.config.document, self._pod_cidr)

    def _pod_cidr(self, family: int) -> str:
        for text in self.pod_cidrs:
            cidr: IPNetwork = ip_network(text, strict=False)
            if cidr.version == family:
                return str(cidr)
        raise CNIError(
            Code.TRY_AGAIN_LATER,
            f"ipam.subnet asks for this node's IPv{family} podCIDR, and its Node resource has none",
            "status.podCIDRs of the Node resource is "
            + (", ".join(self.pod_cidrs) if self.pod_cidrs else "empty"),
        )

    async def _call(self, command: str, config: Mapping[str, object]) -> str:
        env = {key: value for key, value in self.request.env.items() if key.startswith("CNI_")}
        env["CNI_COMMAND"] = command
        env["CNI_ARGS"] = delegate_args(env.get("CNI_ARGS", ""))
        plugin = self.request.config.ipam.type
        ended = await self.line.run(
            protocol.Exec(plugin=plugin, env=env, stdin=json.dumps(config), timeout=SECONDS)
        )
        if ended.status == 0:
            return ended.stdout
        raise _error_of(plugin, ended)


def with_pod_cidr(document: Mapping[str, object], cidr: Callable[[int], str]) -> dict[str, object]:
    """The configuration with `usePodCidr` and `usePodCidrIPv6` (any case) replaced by `cidr`.

    They stand in `ipam.subnet` or in `ipam.ranges[][].subnet`.
    """
    changed = dict(document)
    ipam = document.get("ipam")
    if not isinstance(ipam, Mapping):
        return changed
    ipam = dict(ipam)
    _replace(ipam, cidr)
    ranges = ipam.get("ranges")
    if isinstance(ranges, list):
        ipam["ranges"] = [
            [_replaced(entry, cidr) for entry in group] if isinstance(group, list) else group
            for group in ranges
        ]
    changed["ipam"] = ipam
    return changed


def _replaced(entry: object, cidr: Callable[[int], str]) -> object:
    if not isinstance(entry, Mapping):
        return entry
    copy = dict(entry)
    _replace(copy, cidr)
    return copy


def _replace(holder: dict[str, object], cidr: Callable[[int], str]) -> None:
    subnet = holder.get("subnet")
    family = POD_CIDR.get(subnet.lower()) if isinstance(subnet, str) else None
    if family:
        holder["subnet"] = cidr(family)


def destinations(request: Request, result: Result) -> tuple[IPNetwork, ...]:
    """What a pod reaches through the host: another plugin's routes, else everything.

    Our own ADD promises no more than the default; later plugins of a chain may list theirs.
    Per family; with `include_default_routes` everything as well
    (docs/reference/data-model.md#cni-configuration, #the-veth).
    """
    if not is_delegated(request):
        return EVERYTHING
    own = [ip_network(route.dst.network) for route in result.routes]
    keep = request.config.document.get("include_default_routes") is True
    for family in sorted({ip.address.version for ip in result.ips}):
        everything = ip_network(ANY[family])
        if keep or not any(network.version == family for network in own):
            own.append(everything)
    return tuple(dict.fromkeys(own))


class _Printed(msgspec.Struct):
    code: int = 0
    msg: str = ""
    details: str = ""


def _error_of(plugin: str, ended: protocol.ExecResult) -> CNIError:
    """The delegate's own error, code and text kept (DLG-12)."""
    if ended.status < 0:
        return CNIError(ended.code or Code.INTERNAL, ended.error)
    try:
        printed = msgspec.json.decode(ended.stdout, type=_Printed)
    except NO_DOCUMENT:
        printed = _Printed()
    if not printed.msg:
        return CNIError(Code.INTERNAL, f'plugin "{plugin}" ended with status {ended.status}')
    return CNIError(printed.code or Code.INTERNAL, printed.msg, printed.details)
