"""Whether the bearer of a token may look: the API server says who it is and what it may.

TokenReview names the user, SubjectAccessReview says whether that user may `get` the path
`/muslin/web`, which the ClusterRole calico-web-viewer grants. Our own rights are these two
questions. Source: API reference of TokenReview (authentication.k8s.io/v1) and
SubjectAccessReview (authorization.k8s.io/v1). Tested in tests/apiserver/test_web_reviews.py.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import msgspec

from calicoctl.session import Options, configuration
from libcalico.datastore.kubernetes import client_of
from libcalico.errors import NO_DOCUMENT, MuslinError
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import KubernetesError

RIGHT = "/muslin/web"
"""The path that a looker must be allowed to get; a nonResourceURL of ClusterRoles."""
TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
LONGEST = 16_384
"""Characters of a token."""


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _Status(msgspec.Struct):
    authenticated: bool = False
    allowed: bool = False
    user: _User = msgspec.field(default_factory=_User)


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who it is (empty: the API server knows none), and why that one may not look."""

    user: str
    refusal: str


def reviewer(options: Options) -> Client:
    """A client of the Kubernetes API of these settings. Raises MuslinError where there is none."""
    try:
        return client_of(configuration(options), os.environ)
    except KubernetesError as problem:
        raise MuslinError(f"--token-review: {problem}") from None


class Reviews:
    """Asks the API server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def verdict(self, token: str) -> Verdict:
        """What the API server says of a token. Raises MuslinError where it says nothing."""
        if not token or len(token) > LONGEST or not token.isascii() or not token.isprintable():
            return Verdict("", "that is no token")
        seen = await self._post(
            TOKENS,
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": {"token": token},
            },
        )
        user = seen.status.user
        if not seen.status.authenticated or not user.username:
            return Verdict("", "the API server does not know this token, or it has expired")
        allowed = await self._post(
            ACCESS,
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": user.username,
                    "uid": user.uid,
                    "groups": user.groups,
                    "extra": user.extra,
                    "nonResourceAttributes": {"path": RIGHT, "verb": "get"},
                },
            },
        )
        if not allowed.status.allowed:
            return Verdict(
                user.username,
                f"{user.username} may not get {RIGHT}: bind the ClusterRole calico-web-viewer",
            )
        return Verdict(user.username, "")

    async def _post(self, path: str, body: object) -> _Review:
        try:
            raw = await self._client.request("POST", path, body=msgspec.json.encode(body))
            return msgspec.json.decode(raw, type=_Review)
        except KubernetesError as problem:
            raise MuslinError(f"the API server was not asked who this is: {problem}") from None
        except NO_DOCUMENT:
            raise MuslinError(f"the API server's answer to {path} is no review") from None
