"""Cases: what is announced and taken over sessions that are up."""

from __future__ import annotations

from dataclasses import replace

from tests.bgp.session_lab import RawPeer
from tests.bgp.test_wire import DISCARDED, RESETS, WITHDRAWING
from tests.bgp_interop.catalogue import case
from tests.bgp_interop.fabric import (
    BLOCK,
    BLOCK6,
    NODE,
    NODE6,
    OURS,
    RAW,
    ROUTER,
    THEIRS,
    Fabric,
    eventually_equal,
    link4,
    link6,
)
from tests.bgp_interop.router import Learned, Neighbour, Origin, Setup
from tests.support import bgp_wire as wire
from tests.support.patience import wait_for

OUTSIDE, HIDDEN = "10.200.0.0/24", "10.201.0.0/24"
OUR_BLOCK = Learned(NODE, (OURS,))
WIDE, WIDE_TOO = 4200000001, 4200000002


@case("filters", "F-44")
def filters(lab: Fabric) -> None:
    """Import and export filters act on a session that is up, and their end does, too."""
    lab.router.start(Setup(THEIRS, (link4(),), (Origin(OUTSIDE), Origin(HIDDEN))))
    lab.world.block("n1", "10.65.9.0/26")
    lab.peer()
    lab.up(ROUTER)
    both = {BLOCK: OUR_BLOCK, "10.65.9.0/26": OUR_BLOCK}
    lab.told(both)
    lab.learned({OUTSIDE: (ROUTER,), HIDDEN: (ROUTER,)})
    session = lab.session()
    export = [{"cidr": "10.65.9.0/26", "matchOperator": "Equal", "action": "Reject"}]
    inward = [{"cidr": "10.201.0.0/16", "matchOperator": "In", "action": "Reject"}]
    lab.apply("BGPFilter", "less", {"exportV4": export, "importV4": inward})
    lab.known("less")
    lab.peer(filters=["less"])
    lab.told({BLOCK: OUR_BLOCK})
    lab.learned({OUTSIDE: (ROUTER,)})
    longer = [{"prependASPath": {"prefix": [OURS, OURS]}}]
    lab.apply("BGPFilter", "less", {"exportV4": [{"action": "Accept", "operations": longer}]})
    path = replace(OUR_BLOCK, as_path=(OURS, OURS, OURS))
    lab.told({BLOCK: path, "10.65.9.0/26": path})
    lab.learned({OUTSIDE: (ROUTER,), HIDDEN: (ROUTER,)})
    lab.peer()
    lab.told(both)
    assert lab.session() == session
    lab.world.unblock("n1", "10.65.9.0/26")


@case("communities", "F-45", "PAIN-17")
def communities(lab: Fabric) -> None:
    """Standard and large ones arrive both ways, complete with the first UPDATE of a session."""
    tagged = Origin(HIDDEN, communities=("64500:13",), large=("64500:1:13",))
    setup = Setup(THEIRS, (link4(),), (Origin(OUTSIDE), tagged))
    lab.router.start(setup)
    tags = [{"cidr": "10.65.0.0/16", "communities": ["65000:7", "4200000001:8:9"]}]
    lab.configure(prefixAdvertisements=tags)
    lab.peer()
    lab.up(ROUTER)
    seen = replace(
        OUR_BLOCK, communities=frozenset({"65000:7"}), large=frozenset({"4200000001:8:9"})
    )
    # Each kind has a watch of its own: n1 may have heard of the peer first. By the next session
    # it knows both.
    lab.told({BLOCK: seen})
    lab.router.kill()
    lab.router.start(setup)
    assert wait_for(lab.heard, "the block") == {BLOCK: seen}
    lab.learned({OUTSIDE: (ROUTER,), HIDDEN: (ROUTER,)})
    for number, community in enumerate(("64500:13", "64500:1:13")):
        rule = {"communities": {"values": [community]}, "action": "Reject"}
        lab.apply("BGPFilter", f"tag{number}", {"importV4": [rule]})
        lab.peer(filters=[f"tag{number}"])
        lab.learned({OUTSIDE: (ROUTER,)})
        lab.peer()
        lab.learned({OUTSIDE: (ROUTER,), HIDDEN: (ROUTER,)})
    lab.configure()
    lab.told({BLOCK: OUR_BLOCK})


@case("wide-as")
def wide_as(lab: Fabric) -> None:
    """Numbers above 65535 at both ends, ours written with a dot; paths hold them in full."""
    assert WIDE == 64086 * 65536 + 59905
    lab.register(lab.node, asNumber="64086.59905")
    lab.router.start(Setup(WIDE_TOO, (link4(WIDE),), (Origin(OUTSIDE),)))
    lab.peer(asn=WIDE_TOO)
    lab.up(ROUTER)
    lab.told({BLOCK: Learned(NODE, (WIDE,))})
    lab.learned({OUTSIDE: (ROUTER,)})
    rule = {"asPathPrefix": [WIDE_TOO], "action": "Reject"}
    lab.apply("BGPFilter", "theirs", {"importV4": [rule]})
    lab.peer(asn=WIDE_TOO, filters=["theirs"])
    lab.learned({})


@case("block-release", "M-131")
def block_release(lab: Fabric) -> None:
    """A block that is claimed appears at the router; released, it goes; no session moves."""
    lab.router.start(Setup(THEIRS, (link4(), link6())))
    lab.peer()
    lab.peer("fd99::100")
    lab.up(ROUTER, "fd99::100")
    six = Learned(NODE6, (OURS,))
    always = {BLOCK: OUR_BLOCK, BLOCK6: six}
    lab.told(always)
    session = lab.session()
    for _ in range(2):
        lab.world.block("n1", "10.65.9.0/26")
        lab.world.block("n1", "fd65::80/122")
        lab.told({**always, "10.65.9.0/26": OUR_BLOCK, "fd65::80/122": six})
        lab.world.unblock("n1", "10.65.9.0/26")
        lab.world.unblock("n1", "fd65::80/122")
        lab.told(always)
    assert lab.session() == session


@case("reflectors", "F-39")
def reflectors(lab: Fabric) -> None:
    """The router reflects between our nodes; then n1 reflects between n2 and the router.

    A reflected route keeps its next hop and says who began it and which cluster it passed.
    """
    n1, n2 = lab.node, lab.other
    second = "10.65.2.0/26"
    clients = (link4(client=True), Neighbour(n2.address, OURS, ROUTER, client=True))
    lab.router.start(Setup(OURS, clients, cluster_id="9.9.9.9"))
    lab.register(n2)
    lab.world.block("n2", second)
    lab.apply("BGPPeer", "reflector", {"peerIP": ROUTER, "asNumber": OURS})
    n2.start()
    lab.up(ROUTER)
    lab.learned({second: (n2.address,)})
    wait_for(lambda: n2.ear.table == {BLOCK: (n1.address,)}, "n2's table")
    # The router becomes a node among others, n1 the reflector of both.
    lab.router.kill()
    mine = "10.65.3.0/26"
    lab.apply("Node", "router", {"bgp": {"ipv4Address": f"{ROUTER}/24"}})
    lab.world.block("router", mine)
    lab.register(n1, {"reflects": "yes"}, routeReflectorClusterID="1.1.1.1")
    lab.world.etcdctl("del", lab.path("BGPPeer", "reflector"))
    spec = {"nodeSelector": "!has(reflects)", "peerSelector": "has(reflects)"}
    lab.apply("BGPPeer", "reflector", spec)
    lab.router.start(Setup(OURS, (link4(),), (Origin(mine),)))
    lab.up(ROUTER, n2.address, n2.address6)
    lab.learned({second: (n2.address,), mine: (ROUTER,)})
    all_of_them = {BLOCK: (NODE,), BLOCK6: (NODE6,), mine: (ROUTER,)}
    eventually_equal("n2's table", lambda: n2.ear.table, all_of_them)
    table = wait_for(lambda: _if_both(lab.router.table(), BLOCK, second), "both blocks")
    assert table[second].next_hop == n2.address
    assert table[second].as_path == ()
    assert table[second].originator == n2.address
    assert table[second].clusters == ("1.1.1.1",)
    assert table[BLOCK].next_hop == n1.address
    lab.world.unblock("router", mine)


def _if_both(table: dict[str, Learned], *prefixes: str) -> dict[str, Learned]:
    return table if set(prefixes) <= set(table) else {}


@case("local-pref", "F-45")
def local_pref(lab: Fabric) -> None:
    """The greater wins here; ours carries the priority that newer Calico puts there."""
    origins = (Origin("10.200.1.0/24", local_pref=300), Origin("10.200.2.0/24", local_pref=150))
    lab.router.start(Setup(OURS, (link4(),), origins))
    lab.peer(asn=OURS)
    lab.peer(str(RAW), OURS)
    attributes = wire.ORIGIN + wire.attribute(0x40, 2, b"")
    attributes += wire.attribute(0x40, 3, RAW.packed)
    attributes += wire.attribute(0x40, 5, (200).to_bytes(4, "big"))
    both = b"".join(wire.nlri(each.prefix) for each in origins)

    async def body(raw: RawPeer) -> None:
        lab.up(ROUTER, str(RAW))
        await raw.update(attributes=attributes, reachable=both)
        lab.learned({"10.200.1.0/24": (ROUTER,), "10.200.2.0/24": (str(RAW),)})
        await raw.update(withdrawn=both)
        lab.learned({"10.200.1.0/24": (ROUTER,), "10.200.2.0/24": (ROUTER,)})

    lab.injecting(body)
    plain = Learned(NODE, (), local_pref=100)
    lab.told({BLOCK: plain})
    lab.configure(ipv4NormalRoutePriority=1024)
    lab.told({BLOCK: replace(plain, local_pref=2**31 - 1 - 1024)})
    lab.configure()
    operation = {"action": "Accept", "operations": [{"setPriority": {"value": 512}}]}
    lab.apply("BGPFilter", "first", {"exportV4": [operation]})
    lab.peer(asn=OURS, filters=["first"])
    lab.told({BLOCK: replace(plain, local_pref=2**31 - 1 - 512)})


@case("malformed")
def malformed(lab: Fabric) -> None:
    """A hostile peer says everything of RFC 7606 beside the router's session, which stays.

    Nothing wrong is believed, and nothing of it reaches the router.
    """
    lab.router.start(Setup(THEIRS, (link4(),), (Origin(OUTSIDE),)))
    lab.peer()
    lab.peer(str(RAW), OURS)
    # 10.66.0.0/16 is no pool's: what n1 hears of it is not for the router.
    good = wire.ORIGIN + wire.AS_PATH + wire.attribute(0x40, 3, RAW.packed)
    other = "10.66.1.0/24"
    kept = {OUTSIDE: (ROUTER,), "10.66.2.0/24": (str(RAW),)}
    hostile = {**kept, other: (str(RAW),)}
    routes = wire.nlri(other) + wire.nlri("10.66.2.0/24")
    seen: set[str] = set()

    async def errors(raw: RawPeer) -> None:
        lab.up(ROUTER, str(RAW))
        lab.told({BLOCK: OUR_BLOCK})
        seen.update((str(lab.session()), str(lab.node.exabgp())))
        for attributes in WITHDRAWING.values():
            await raw.update(attributes=good, reachable=routes)
            lab.learned(hostile)
            await raw.update(attributes=attributes, reachable=wire.nlri(other))
            lab.learned(kept)
        for attributes in DISCARDED.values():
            await raw.update(attributes=good + attributes, reachable=routes)
            lab.learned(hostile)
            await raw.update(withdrawn=wire.nlri(other))
            lab.learned(kept)
        assert raw.notifications() == []

    lab.injecting(errors)
    # Where IPv6 was not agreed on, its prefixes need not be found behind the cut.
    resets = {name: each for name, each in RESETS.items() if not name.startswith("3 j")}
    for code, subcode, text in resets.values():

        async def reset(
            raw: RawPeer, text: bytes = text, notice: tuple[int, int] = (code, subcode)
        ) -> None:
            await raw.update(attributes=good, reachable=routes)
            lab.learned(hostile)
            await raw.send(wire.UPDATE, text)
            await raw.closed.wait()
            assert raw.notifications() in ([notice], [(1, 2)])

        lab.injecting(reset)
        lab.learned({OUTSIDE: (ROUTER,)})
    assert seen == {str(lab.session()), str(lab.node.exabgp())}
    assert lab.router.up(NODE)
    lab.told({BLOCK: OUR_BLOCK})
