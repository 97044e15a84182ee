"""ExaBGP's list of what is to be sent, with our change of it: the last word of a prefix counts."""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""ExaBGP is changed in its own process alone, so this test runs in one, too."""


def test_the_last_word_counts() -> None:
    """Whatever is said of one prefix among others before it is sent, the last word is sent last."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-m", __name__], check=True, env=environ, cwd=ROOT)


def main() -> None:
    from exabgp.bgp.message import Action
    from exabgp.configuration.configuration import Configuration
    from exabgp.environment import getenv
    from exabgp.logger import log
    from exabgp.protocol.family import AFI, SAFI
    from exabgp.reactor.api import API
    from exabgp.rib.outgoing import OutgoingRIB

    from bgp.speaker.exabgp import patches

    log.init(getenv())
    patches.last_word()
    api = API.__new__(API)
    api.configuration = Configuration([])
    words = {
        "one": ("announce attributes next-hop 10.0.0.1 origin igp local-preference 1 nlri", "A"),
        "two": ("announce attributes next-hop 10.0.0.1 origin igp local-preference 2 nlri", "A"),
        "gone": ("withdraw attributes next-hop self nlri", "W"),
    }

    def say(rib: OutgoingRIB, word: str, net: str) -> None:
        text, kind = words[word]
        for change in api.api_attributes(f"{text} {net}", ["peer"]):
            change.nlri.action = Action.ANNOUNCE if kind == "A" else Action.WITHDRAW
            rib.add_to_rib(change)

    net, other = "10.65.1.0/26", "10.65.2.0/26"
    for first in words:
        for story in itertools.chain.from_iterable(
            itertools.product(words, repeat=length) for length in range(1, 5)
        ):
            rib = OutgoingRIB(True, {(AFI.ipv4, SAFI.unicast)})
            say(rib, first, other)
            for word in story:
                say(rib, word, net)
            last = ""
            for update in rib.updates(True):
                for nlri in update.nlris:
                    if str(nlri).startswith(net):
                        preference = str(update.attributes).rpartition(" ")[2]
                        last = "gone" if nlri.action == Action.WITHDRAW else preference
            wanted = {"one": "1", "two": "2", "gone": "gone"}[story[-1]]
            assert last == wanted, (first, story, last)


if __name__ == "__main__":
    main()
