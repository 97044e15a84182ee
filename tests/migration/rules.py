"""The rules and sets that Calico's felix leaves on a node, for iptables-restore and ipset.

Taken in shape from a dump of the real one (iptables on nf_tables): chains, marks and order are its
own, as is the digest in a comment by which it knows each of its rules again.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence

CLIENTS = "cali40s:rV61RKD1Q8wo61pyeB0j2rw"
ORPHANS = ("cali-tw-calidead00beef1", "cali40s:of-a-policy-long-gone0")
"""A chain and a set that a Calico which was killed did not come to remove."""
ACCEPT, PASS = "0x10000/0x10000", "0x20000"
ESTABLISHED = "-m conntrack --ctstate RELATED,ESTABLISHED"

_MANGLE = """\
*mangle
:cali-POSTROUTING - [0:0]
:cali-PREROUTING - [0:0]
:cali-egress-dscp - [0:0]
:cali-from-host-endpoint - [0:0]
:cali-to-host-endpoint - [0:0]
-A PREROUTING -j cali-PREROUTING
-A POSTROUTING -j cali-POSTROUTING
-A cali-POSTROUTING -m mark --mark 0x10000/0x10000 -j RETURN
-A cali-POSTROUTING -j MARK --set-xmark 0x0/0x1b0000
-A cali-POSTROUTING -m conntrack --ctstate DNAT -j cali-to-host-endpoint
-A cali-PREROUTING -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-PREROUTING -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-PREROUTING -j cali-from-host-endpoint
COMMIT
*raw
:cali-OUTPUT - [0:0]
:cali-PREROUTING - [0:0]
:cali-from-host-endpoint - [0:0]
:cali-rpf-skip - [0:0]
:cali-to-host-endpoint - [0:0]
-A PREROUTING -j cali-PREROUTING
-A OUTPUT -j cali-OUTPUT
-A cali-OUTPUT -j MARK --set-xmark 0x0/0x1b0000
-A cali-OUTPUT -j cali-to-host-endpoint
-A cali-PREROUTING -j MARK --set-xmark 0x0/0x1b0000
-A cali-PREROUTING -i cali+ -j MARK --set-xmark 0x80000/0x80000
-A cali-PREROUTING -m mark --mark 0x80000/0x80000 -j cali-rpf-skip
-A cali-PREROUTING -m mark --mark 0x80000/0x80000 -m rpfilter --validmark --invert -j DROP
-A cali-PREROUTING -m mark --mark 0x0/0x80000 -j cali-from-host-endpoint
COMMIT
*nat
:cali-OUTPUT - [0:0]
:cali-POSTROUTING - [0:0]
:cali-PREROUTING - [0:0]
:cali-fip-dnat - [0:0]
:cali-fip-snat - [0:0]
:cali-nat-outgoing - [0:0]
-A PREROUTING -j cali-PREROUTING
-A OUTPUT -j cali-OUTPUT
-A POSTROUTING -j cali-POSTROUTING
-A cali-OUTPUT -j cali-fip-dnat
-A cali-POSTROUTING -j cali-fip-snat
-A cali-POSTROUTING -j cali-nat-outgoing
-A cali-PREROUTING -j cali-fip-dnat
-A cali-nat-outgoing -m set --match-set cali40masq-ipam-pools src \
-m set ! --match-set cali40network-ip-pools dst -j MASQUERADE --random-fully
COMMIT
"""
_FILTER = """\
*filter
:cali-FORWARD - [0:0]
:cali-INPUT - [0:0]
:cali-OUTPUT - [0:0]
:cali-cidr-block - [0:0]
:cali-from-hep-forward - [0:0]
:cali-from-host-endpoint - [0:0]
:cali-from-wl-dispatch - [0:0]
:cali-pi-np/default/clients - [0:0]
:cali-pri-kns.default - [0:0]
:cali-pro-kns.default - [0:0]
:cali-to-hep-forward - [0:0]
:cali-to-host-endpoint - [0:0]
:cali-to-wl-dispatch - [0:0]
:cali-wl-to-host - [0:0]
-A INPUT -j cali-INPUT
-A FORWARD -j cali-FORWARD
-A FORWARD -m mark --mark 0x10000/0x10000 -j ACCEPT
-A FORWARD -j MARK --set-xmark 0x10000/0x10000
-A OUTPUT -j cali-OUTPUT
-A cali-FORWARD -j MARK --set-xmark 0x0/0x1a0000
-A cali-FORWARD -m mark --mark 0x0/0x10000 -j cali-from-hep-forward
-A cali-FORWARD -i cali+ -j cali-from-wl-dispatch
-A cali-FORWARD -o cali+ -j cali-to-wl-dispatch
-A cali-FORWARD -j cali-to-hep-forward
-A cali-FORWARD -j cali-cidr-block
-A cali-INPUT -i cali+ -g cali-wl-to-host
-A cali-INPUT -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-INPUT -j MARK --set-xmark 0x0/0x1b0000
-A cali-INPUT -j cali-from-host-endpoint
-A cali-OUTPUT -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-OUTPUT -o cali+ -j RETURN
-A cali-OUTPUT -j MARK --set-xmark 0x0/0x1b0000
-A cali-OUTPUT -m conntrack ! --ctstate DNAT -j cali-to-host-endpoint
-A cali-pri-kns.default -j MARK --set-xmark 0x10000/0x10000
-A cali-pro-kns.default -j MARK --set-xmark 0x10000/0x10000
-A cali-wl-to-host -j cali-from-wl-dispatch
-A cali-wl-to-host -j ACCEPT
"""


def tables(interfaces: Sequence[str], with_policy: str) -> str:
    """The text for iptables-restore; the endpoint `with_policy` has the policy of its ingress."""
    policy = "cali-pi-np/default/clients"
    lines = [_MANGLE, _FILTER, f":{ORPHANS[0]} - [0:0]\n", f"-A {ORPHANS[0]} -j DROP\n"]
    allow = f"-m set --match-set {CLIENTS} src -j MARK --set-xmark {ACCEPT}"
    lines.append(f"-A {policy} {allow}\n")
    for interface in interfaces:
        chosen = policy if interface == with_policy else ""
        lines += [f"{line}\n" for line in _endpoint(interface, chosen)]
    lines += [f"-A cali-{way}-wl-dispatch -j DROP\n" for way in ("from", "to")]
    text = "".join([*lines, "COMMIT\n"])
    return "".join(_with_digest(line) for line in text.splitlines(keepends=True))


def _with_digest(line: str) -> str:
    words = line.split(" ", 2)
    if words[0] != "-A":
        return line
    digest = base64.urlsafe_b64encode(hashlib.sha224(line.encode()).digest())[:16].decode()
    return f'-A {words[1]} -m comment --comment "cali:{digest}" {words[2]}'


def _endpoint(interface: str, policy: str) -> Iterator[str]:
    for way, flag, chain, profile in (
        ("from", "-i", f"cali-fw-{interface}", "cali-pro-kns.default"),
        ("to", "-o", f"cali-tw-{interface}", "cali-pri-kns.default"),
    ):
        yield f":{chain} - [0:0]"
        yield f"-A cali-{way}-wl-dispatch {flag} {interface} -g {chain}"
        yield f"-A {chain} {ESTABLISHED} -j ACCEPT"
        yield f"-A {chain} -m conntrack --ctstate INVALID -j DROP"
        yield f"-A {chain} -j MARK --set-xmark 0x0/0x30000"
        if policy and way == "to":
            yield f"-A {chain} -j MARK --set-xmark 0x0/{PASS}"
            yield f"-A {chain} -m mark --mark 0x0/{PASS} -j {policy}"
            yield f"-A {chain} -m mark --mark {ACCEPT} -j RETURN"
            yield f"-A {chain} -m mark --mark 0x0/{PASS} -j DROP"
        yield f"-A {chain} -j {profile}"
        yield f"-A {chain} -m mark --mark {ACCEPT} -j RETURN"
        yield f"-A {chain} -j DROP"


def sets(pool: str, own: Sequence[str], clients: Sequence[str]) -> str:
    """The text for `ipset restore`."""
    kinds = {
        "cali40this-host": ("hash:ip", own),
        "cali40network-ip-pools": ("hash:net", [pool]),
        "cali40masq-ipam-pools": ("hash:net", [pool]),
        CLIENTS: ("hash:net", clients),
        ORPHANS[1]: ("hash:net", ["192.0.2.0/24"]),
    }
    lines = []
    for name, (kind, members) in kinds.items():
        lines.append(f"create {name} {kind} family inet maxelem 1048576 -exist\n")
        lines.append(f"flush {name}\n")
        lines += [f"add {name} {member}\n" for member in members]
    return "".join(lines)
