"""Users whose credentials the package `kubernetes` gets: programs, providers, passwords.

The programs are real ones, and a token is one that a program printed.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from libcalico.kubernetes.errors import NoAccess
from libcalico.kubernetes.kubeconfig import Kubeconfig

VERSION = "client.authentication.k8s.io/v1"
PAST, FUTURE = "2001-01-01T00:00:00Z", "2999-01-01T00:00:00Z"
SECRET = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEyMzQ1Njc4OTAifQ"


def written(folder: Path, user: dict[str, Any], ca: str = "Q0E=") -> Kubeconfig:
    """A kubeconfig with one user, `jane`."""
    cluster = {"server": "https://api:6443", "certificate-authority-data": ca}
    tree = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "jane"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "jane", "user": user}],
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(tree))
    return Kubeconfig(str(folder / "kubeconfig"))


def plugin(folder: Path, body: str) -> dict[str, Any]:
    """The field `exec` for a shell script, which counts its runs in the file `runs`."""
    script = folder / "plugin"
    script.write_text(f"#!/bin/sh\necho run >>{folder}/runs\n{body}\n")
    script.chmod(0o755)
    return {"apiVersion": VERSION, "command": "./plugin", "interactiveMode": "Never"}


def gives(**status: str) -> str:
    return f"cat <<'E'\n{answer(**status)}\nE"


def answer(**status: str) -> str:
    return json.dumps({"apiVersion": VERSION, "kind": "ExecCredential", "status": status})


def runs(folder: Path) -> int:
    return (folder / "runs").read_text().count("run")


def test_a_token_is_kept_until_it_is_refused_or_over(tmp_path: Path) -> None:
    source = written(tmp_path, {"exec": plugin(tmp_path, gives(token="one"))})
    access = source()
    assert (access.token, access.scheme, access.ca) == ("one", "Bearer", b"CA")
    assert source() == access
    assert runs(tmp_path) == 1
    plugin(tmp_path, gives(token="two", expirationTimestamp=FUTURE))
    assert source().token == "one"
    source.refused(access)
    assert source().token == "two"
    # The refusal of what is not held any more, by another request, asks for nothing.
    source.refused(access)
    assert source().token == "two"
    assert runs(tmp_path) == 2
    source = written(
        tmp_path, {"exec": plugin(tmp_path, gives(token="o", expirationTimestamp=PAST))}
    )
    source()
    plugin(tmp_path, gives(token="n"))
    assert source().token == "n"


def test_a_certificate_of_a_program(tmp_path: Path) -> None:
    body = gives(clientCertificateData="CERT", clientKeyData="KEY")
    access = written(tmp_path, {"exec": plugin(tmp_path, body)})()
    assert (access.cert, access.key, access.token) == (b"CERT", b"KEY", "")


def test_a_program_gets_arguments_variables_and_the_cluster(tmp_path: Path) -> None:
    told = f'echo "$1 $REGION $KUBERNETES_EXEC_INFO" >{tmp_path}/told\n'
    spec = plugin(tmp_path, told + gives(token="t")) | {
        "args": ["get-token"],
        "env": [{"name": "REGION", "value": "north"}],
        "provideClusterInfo": True,
    }
    written(tmp_path, {"exec": spec})()
    first, region, info = (tmp_path / "told").read_text().split(" ", 2)
    assert (first, region) == ("get-token", "north")
    cluster = json.loads(info)["spec"]["cluster"]
    assert cluster["server"] == "https://api:6443"
    assert cluster["certificate-authority-data"] == "Q0E="


def test_secrets_are_in_no_text(tmp_path: Path) -> None:
    access = written(tmp_path, {"exec": plugin(tmp_path, gives(token=SECRET))})()
    assert SECRET not in repr(access)
    body = f'echo "no session for {SECRET} with $KEY" >&2; exit 3'
    spec = plugin(tmp_path, body) | {"env": [{"name": "KEY", "value": "my key"}]}
    with pytest.raises(NoAccess, match=r"returned 3\. no session for \.\.\. with \.\.\.$"):
        written(tmp_path, {"exec": spec})()


@pytest.mark.parametrize(
    ("body", "more", "named"),
    [
        ("", {"command": "./none", "installHint": "get it\n"}, r"exec\.command: .*none.*; get it$"),
        ("", {"command": "muslin-none"}, r"exec\.command: no program 'muslin-none'"),
        ("", {"command": ""}, r"exec\.command: must be text"),
        ("", {"apiVersion": 1}, r"exec\.apiVersion: must be text"),
        ("", {"args": "x"}, r"exec\.args: must be a list"),
        ("", {"env": [{"name": "x"}]}, r"exec\.env: must be a list"),
        ("echo broken >&2; exit 1", {}, "exec: .*plugin: process returned 1. broken"),
        ("echo hello", {}, "exec: .*failed to decode process output"),
        ("echo '[]'", {}, "exec: .*malformed response"),
        (gives(), {"apiVersion": "client.authentication.k8s.io/v2"}, "exec: .*does not match"),
        (gives(), {}, "exec: .*neither a token nor a certificate"),
        (gives(token="t", expirationTimestamp="soon"), {}, "expirationTimestamp that is no time"),
        (gives(token="two words"), {}, "holds no token"),
    ],
)
def test_what_a_program_lacks_is_named_with_file_user_and_field(
    tmp_path: Path, body: str, more: dict[str, Any], named: str
) -> None:
    source = written(tmp_path, {"exec": plugin(tmp_path, body) | more})
    with pytest.raises(NoAccess, match=named) as caught:
        source()
    assert str(tmp_path / "kubeconfig") in str(caught.value)
    if "holds no token" not in named:
        assert "user 'jane': users[].user.exec" in str(caught.value)


def test_a_program_that_must_ask_needs_a_terminal(tmp_path: Path) -> None:
    user = {"exec": plugin(tmp_path, gives(token="t")) | {"interactiveMode": "Always"}}
    written(tmp_path, user)
    code = (
        "from libcalico.kubernetes.kubeconfig import Kubeconfig\n"
        "from libcalico.kubernetes.errors import NoAccess\n"
        f"try: Kubeconfig({str(tmp_path / 'kubeconfig')!r})()\n"
        "except NoAccess as error: print(error)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    assert "user 'jane': users[].user.exec.interactiveMode: is Always" in done.stdout
    assert not (tmp_path / "runs").exists()


def test_a_name_and_a_password(tmp_path: Path) -> None:
    access = written(tmp_path, {"username": "jane", "password": "pass"})()
    assert access.scheme == "Basic"
    assert base64.b64decode(access.token) == b"jane:pass"
    with pytest.raises(NoAccess, match=r"user 'jane': .*username: a name and a password go"):
        written(tmp_path, {"username": "jane"})()


def id_token(seconds: float) -> str:
    """A token of an OIDC issuer that ends so many seconds from now; nothing here verifies it."""
    parts = ({"alg": "none"}, {"exp": int(time.time() + seconds)})
    packed = [base64.urlsafe_b64encode(json.dumps(one).encode()).decode() for one in parts]
    return ".".join(one.rstrip("=") for one in packed) + ".c2ln"


def oidc(token: str) -> dict[str, Any]:
    config = {
        "id-token": token,
        "idp-issuer-url": "https://127.0.0.1:1",
        "client-id": "c",
        "client-secret": "s",
        "refresh-token": SECRET,
    }
    return {"auth-provider": {"name": "oidc", "config": config}}


def test_a_token_of_an_oidc_issuer(tmp_path: Path) -> None:
    token = id_token(86_400)
    assert written(tmp_path, oidc(token))().token == token


def test_an_oidc_issuer_that_is_away_is_named_without_its_secrets(tmp_path: Path) -> None:
    with pytest.raises(NoAccess, match=r"user 'jane': users\[\]\.user\.auth-provider: ") as caught:
        written(tmp_path, oidc(id_token(-1)))()
    assert SECRET not in str(caught.value)


def test_a_provider_that_is_no_more_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoAccess, match=r"auth-provider\.name: must be one of oidc, gcp"):
        written(tmp_path, {"auth-provider": {"name": "azure"}})()


def test_an_installation_without_the_package_says_so(tmp_path: Path) -> None:
    written(tmp_path, {"exec": plugin(tmp_path, gives(token="t"))})
    code = (
        "import sys; sys.modules['kubernetes'] = None\n"
        "from libcalico.kubernetes.kubeconfig import Kubeconfig\n"
        "from libcalico.kubernetes.errors import NoAccess\n"
        f"try: Kubeconfig({str(tmp_path / 'kubeconfig')!r})()\n"
        "except NoAccess as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "user 'jane': users[].user.exec: needs the Python package `kubernetes`" in done.stdout
    assert not (tmp_path / "runs").exists()
