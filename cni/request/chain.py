"""Our plugin in a chain: what was before it goes on, what the network's configuration adds.

A `prevResult` on ADD means that another plugin came first. What it made is passed on in front
of ours and must not be dropped. Where it made the very interface that we are asked for, there are
two cases. A configuration with `ipam` wants a second veth pair, which is refused. One without
`ipam` wants only policy on the interface that is there (`cni.verbs.policy_only`).

Pure. Invariants (tests/cni/test_chain.py):
  CNI-90  Interfaces, addresses and routes of prevResult stand before ours, and every `interface`
          index names the same interface as before.
  CNI-91  A key of `dns` is the runtime's (`runtimeConfig.dns`), else IPAM's, else the
          configuration's, else that of prevResult.

Source: conformance PRV-01 to PRV-03, CFG-17, CFG-19, CAP-07.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cni.request.errors import CNIError, Code
from cni.request.request import Request
from cni.request.result import DNS, FLAT, Result
from cni.request.result_decoding import decode

NO_DNS = DNS()


def previous_of(request: Request) -> Result | None:
    """What the plugins before us made; None where we are the first.

    The oldest versions know no chain, so it means nothing there. Raises CNIError 6 when it
    cannot be read.
    """
    document = request.config.prev_result
    if document is None or request.config.result_version in FLAT:
        return None
    try:
        return decode(document, request.config.version)
    except CNIError as error:
        reason = error.msg.removeprefix("could not parse a CNI result: ")
        raise CNIError(error.code, f"could not parse prevResult: {reason}") from error


def own_index(request: Request, previous: Result) -> int | None:
    """Which interface of prevResult is CNI_IFNAME in CNI_NETNS, if any."""
    for index, link in enumerate(previous.interfaces):
        if link.name == request.ifname and link.sandbox == request.netns:
            return index
    return None


def is_policy_only(request: Request, previous: Result | None) -> bool:
    """Whether another plugin connects the pod, and we are to enforce its policy.

    Raises CNIError 7 where the configuration says neither that nor how to connect it.
    """
    there = previous is not None and own_index(request, previous) is not None
    if request.config.ipam.type:
        if there:
            raise CNIError(
                Code.INVALID_CONFIG,
                f"interface {request.ifname} was made by a plugin before calico in the list",
                "with ipam calico makes an interface of its own; without ipam it enforces policy "
                "on the one that is there",
            )
        return False
    return there


def chained(previous: Result | None, own: Result) -> Result:
    """Our result behind what was there (CNI-90)."""
    if previous is None:
        return own
    before = len(previous.interfaces)
    ips = tuple(
        msgspec.structs.replace(ip, interface=ip.interface + before)
        if ip.interface is not None
        else ip
        for ip in own.ips
    )
    return Result(
        (*previous.interfaces, *own.interfaces),
        (*previous.ips, *ips),
        (*previous.routes, *own.routes),
        _filled(own.dns, previous.dns),
    )


def with_dns(request: Request, result: Result) -> Result:
    """The result with what runtime and configuration say of DNS (CNI-91)."""
    document = request.config.document
    runtime = document.get("runtimeConfig")
    asked = _capability(runtime) if isinstance(runtime, Mapping) else NO_DNS
    configured = _configured(document.get("dns"))
    if asked == configured == NO_DNS:
        return result
    return msgspec.structs.replace(result, dns=_filled(_filled(asked, result.dns), configured))


def _filled(first: DNS, second: DNS) -> DNS:
    """`first`, with the members of `second` where it has none."""
    ours, theirs = msgspec.structs.asdict(first), msgspec.structs.asdict(second)
    return DNS(**{key: value or theirs[key] for key, value in ours.items()})


def _capability(runtime: Mapping[str, object]) -> DNS:
    """`runtimeConfig.dns`: members in any case, lists that may be null (CFG-10, CAP-09)."""
    dns = {key.lower(): value for key, value in runtime.items()}.get("dns")
    if not isinstance(dns, Mapping):
        return DNS()
    folded = {key.lower(): value for key, value in dns.items()}
    return DNS(
        nameservers=_texts(folded.get("servers")),
        search=_texts(folded.get("searches")),
        options=_texts(folded.get("options")),
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(t for t in value if isinstance(t, str)) if isinstance(value, list) else ()


def _configured(value: object) -> DNS:
    if value is None:
        return NO_DNS
    try:
        return msgspec.convert(value, DNS)
    except msgspec.ValidationError as error:
        raise CNIError(
            Code.INVALID_CONFIG, f"invalid network configuration: dns: {error}"
        ) from None
