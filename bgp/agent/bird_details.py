"""Details of sessions and paths, in the words of BIRD.

Tested in tests/bgp/test_birdctl.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bgp.bird import birdlines as out
from bgp.routes.bestpath import Candidate, local_pref
from bgp.speaker.interface import Family, PeerOpen


def capabilities(heard: PeerOpen) -> Iterator[str]:
    yield "      Multiprotocol"
    yield f"        AF announced: {families_text(heard.families)}"
    if heard.route_refresh:
        yield "      Route refresh"
    if heard.restart_time is not None:
        yield "      Graceful restart"
        yield f"        Restart time: {heard.restart_time}"
        yield f"        AF supported: {families_text(heard.restart_families)}"
        yield f"        AF preserved: {families_text(heard.forwarding)}"
    if heard.four_octet_as:
        yield "      4-octet AS numbers"
    if heard.add_path:
        yield "      ADD-PATH"
        yield f"        TX: {families_text(heard.add_path)}"


def families_text(families: Iterable[Family]) -> str:
    return " ".join(sorted(family.value.split()[0] for family in families))


def attributes(path: Candidate) -> Iterator[tuple[int, str]]:
    yield out.ROUTE_DETAIL, "\tType: BGP univ"
    given = path.attributes
    words = [
        ("origin", given.origin.name.capitalize() if given.origin == 2 else given.origin.name),
        ("as_path", " ".join(map(str, given.as_path))),
        ("next_hop", str(path.next_hop)),
        ("med", given.med),
        ("local_pref", local_pref(path)),
        ("community", " ".join(f"({one.replace(':', ',')})" for one in given.communities)),
        ("originator_id", given.originator_id),
        ("cluster_list", " ".join(given.cluster_list)),
        (
            "large_community",
            " ".join(f"({one.replace(':', ', ')})" for one in given.large_communities),
        ),
    ]
    for name, value in words:
        if value is not None and (value != "" or name == "as_path"):
            yield out.ROUTE_ATTRIBUTES, f"\tBGP.{name}: {value}"
