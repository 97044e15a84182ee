"""What an answer to one call of gRPC's is, and what it means that there is none.

Headers of an answer are not read: etcd's server sends a message only when the call succeeded. One
field alone is looked for in the headers that end a call without an answer: whether etcd refused to
begin it. Pure. Tested in tests/libcalico/test_etcd_express.py.
"""

from __future__ import annotations

import re

from libcalico.datastore.etcd.frames import MESSAGE

TXN, RANGE = b"/etcdserverpb.KV/Txn", b"/etcdserverpb.KV/Range"
LEADER = ("hasleader", "true")
"""Metadata: etcd refuses a call with this at once where it would wait for a leader otherwise."""
_STATUS = re.compile(
    rb"(?:\x88\x9a\xca\xc8\xb2\x12\x34\xda\x8f|\x0bgrpc-status)(?:\x01([37])|\x02(16))"
)
"""The field `grpc-status` with a code of which etcd says it before it carries anything out: invalid
argument, permission denied, unauthenticated. Its name is as a literal of HPACK, packed (RFC 7541
section 5.2) or plain; we ask for no table, so it is never anything else."""
_LOGIN = (b"3", b"16")
"""A token that ended is one or the other, by what etcd has restarted or edited."""


class Unanswered(Exception):
    """There is no answer.

    `sent`: the request had left and may have been carried out. `login`: it was not, perhaps because
    the login is no longer valid.
    """

    def __init__(self, reason: str, *, sent: bool, login: bool = False) -> None:
        self.sent, self.login = sent, login
        super().__init__(reason)


def answer_of(received: bytearray) -> bytes | None:
    """The message of an answer, or None while it is not complete. Raises Unanswered."""
    if len(received) < MESSAGE.size:
        return None
    compressed, length = MESSAGE.unpack_from(received)
    size = MESSAGE.size + length
    if compressed or len(received) > size:
        text = "a compressed answer" if compressed else "more than one answer"
        raise Unanswered(text, sent=True)
    return bytes(received[MESSAGE.size :]) if len(received) == size else None


def refusal_of(block: bytes, received: bytearray) -> Unanswered:
    """What the headers say that end a call without an answer: an error, or a plain refusal."""
    code = _STATUS.search(block)
    if code is None or received:
        return Unanswered("an error instead of an answer", sent=True)
    login = code[code.lastindex or 0] in _LOGIN
    return Unanswered("etcd refused the call", sent=False, login=login)
