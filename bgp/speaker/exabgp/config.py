"""Peers -> ExaBGP configuration text. Pure; golden file tests/bgp/golden/exabgp.conf.

Every neighbor is written in full, but for the section `api`, which is the same for all: a
scalar in an inherited template wins over the neighbor's own value in ExaBGP 5, so templates
are a trap. ExaBGP takes 0.3 ms to read a neighbor, a third of it for that section. Order is
stable, so equal peers give equal text, and ExaBGP leaves the sessions whose definition did
not change alone.

What each line is for:
- `manual-eor true`: End-of-RIB is ours to send, after our announcements. Sent too early, a
  helper would drop the routes it kept for us.
- `adj-rib-out true`: ExaBGP sets it under `route-refresh` and says so for each peer. Nothing
  is kept in it of what the agent sends (`sending.py`).
- `graceful-restart N`: the forwarding bit is always set by ExaBGP; at most 4095 s.
- `listen` binds the local address only, never the wildcard.
- the key of RFC 2385 is written in base64: no character of it can end the string.
- `incoming-ttl`: the least TTL accepted (RFC 5082); without it any number of hops passes.
- `description` carries what ExaBGP has no word for (`neighbor_options`).
- `add-path receive`: a peer that offers several paths for a prefix is asked for all of them.
Tested in tests/bgp/test_exabgp.py.
"""

from __future__ import annotations

import base64
from collections.abc import Collection

from bgp.speaker.interface import BGP_PORT, Peer

PROCESS = "muslin"
_MAX_RESTART_TIME = 4095


def render(peers: Collection[Peer], program: str) -> str:
    """The configuration for `peers`.

    `program`: an executable file, because ExaBGP wants one that exists. It is never started
    (`upstream.agent_pipes`). Raises `ValueError` for one with white space or a semicolon, which
    ExaBGP's grammar cannot carry.
    """
    if not program or any(character in program for character in " \t\n;{}'\""):
        raise ValueError(f"program: {program!r} cannot be written in the configuration")
    lines = [
        f"process {PROCESS} {{",
        f"    run {program};",
        "    encoder json;",
        "    respawn false;",
        "}",
        "",
        "template {",
        f"    neighbor {PROCESS} {{",
        "        api {",
        f"            processes [ {PROCESS} ];",
        "            neighbor-changes;",
        "            receive { parsed; open; update; notification; }",
        "        }",
        "    }",
        "}",
    ]
    for peer in sorted(peers, key=lambda peer: (peer.address.version, int(peer.address))):
        lines += ["", *_neighbor(peer)]
    return "\n".join(lines) + "\n"


def _neighbor(peer: Peer) -> list[str]:
    lines = [
        f"neighbor {peer.address} {{",
        f"    inherit {PROCESS};",
        f"    local-address {peer.local_address};",
        f"    router-id {peer.router_id};",
        f"    local-as {peer.local_as};",
        f"    peer-as {peer.remote_as};",
        f"    hold-time {peer.hold_time};",
        f"    listen {peer.listen_port};",
    ]
    if options := _options(peer):
        lines.append(f'    description "muslin {options}";')
    if peer.port != BGP_PORT:
        lines.append(f"    connect {peer.port};")
    if peer.passive:
        lines.append("    passive true;")
    if peer.ttl_security:
        lines.append("    outgoing-ttl 255;")
        lines.append(f"    incoming-ttl {256 - peer.ttl_security};")
    if peer.password:
        key = base64.b64encode(peer.password.encode()).decode()
        lines.append(f'    md5-password "{key}";')
        lines.append("    md5-base64 true;")
    lines += [
        "    manual-eor true;",
        "    adj-rib-out true;",
        "    family {",
        *(f"        {family.value};" for family in peer.families),
        "    }",
        "    capability {",
        f"        graceful-restart {min(peer.restart_time, _MAX_RESTART_TIME)};",
        "        route-refresh enable;",
        "        asn4 enable;",
        *(["        add-path receive;"] if peer.add_path else []),
        "    }",
        "}",
    ]
    return lines


def _options(peer: Peer) -> str:
    words = [f"keepalive={peer.keepalive}"] if peer.keepalive else []
    words += ["any-source"] if peer.any_source else []
    words += ["listen-any"] if peer.listen_any else []
    return " ".join(words)
