"""Where the Kubernetes API is and who we are to it: every way, what rotates, what is refused."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from libcalico.apiconfig import DatastoreConfig, from_environment
from libcalico.kubernetes.access import Kubeconfig, Source, find, in_cluster
from libcalico.kubernetes.errors import NoAccess
from libcalico.parsing import Proxy

IN_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def account(folder: Path, token: str = "t0", ca: str = "CA") -> Path:
    (folder / "token").write_text(token + "\n")
    (folder / "ca.crt").write_text(ca)
    return folder


def tree(user: dict[str, Any], cluster: dict[str, Any] | None = None) -> dict[str, Any]:
    server = {"server": "https://api.example:6443/base", **(cluster or {})}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [
            {"name": "y", "context": {"cluster": "other", "user": "u"}},
            {"name": "x", "context": {"cluster": "c", "user": "u"}},
        ],
        "clusters": [
            {"name": "other", "cluster": {"server": "https://other:1"}},
            {"name": "c", "cluster": server},
        ],
        "users": [{"name": "u", "user": user}],
    }


def written(folder: Path, content: object) -> Kubeconfig:
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return Kubeconfig(str(path))


def test_a_pods_service_account_is_read_each_time(tmp_path: Path) -> None:
    source = in_cluster(IN_POD, account(tmp_path))
    assert source().server == "https://10.96.0.1:443"
    assert (source().token, source().ca) == ("t0", b"CA")
    assert "t0" not in repr(source())
    account(tmp_path, "t1", "CA2")
    assert (source().token, source().ca) == ("t1", b"CA2")
    (tmp_path / "token").unlink()
    with pytest.raises(NoAccess, match=r"service account's token cannot be read.*/token"):
        source()
    account(tmp_path)
    six = in_cluster({**IN_POD, "KUBERNETES_SERVICE_HOST": "fd00::1"}, tmp_path)
    assert six().address == ("fd00::1", 443)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoAccess, match=r"KUBECONFIG or K8S_API_ENDPOINT.*KUBERNETES_SERVICE_HOST"):
        in_cluster({}, tmp_path)
    with pytest.raises(NoAccess, match="token cannot be read"):
        in_cluster(IN_POD, tmp_path)


def test_a_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(b"CA")
    user = {"token": "secret-token", "client-certificate-data": "Q0VSVA==", "client-key": "k.pem"}
    (tmp_path / "k.pem").write_bytes(b"KEY")
    source = written(tmp_path, tree(user, {"certificate-authority": "ca.pem"}))
    access = source()
    assert access.address == ("api.example", 6443)
    assert access.base == "/base"
    assert (access.ca, access.cert, access.key) == (b"CA", b"CERT", b"KEY")
    assert access.token == "secret-token"
    assert not access.insecure
    for secret in ("secret-token", "KEY"):
        assert secret not in repr(access)
    named = Kubeconfig(str(tmp_path / "kubeconfig"), context="y")
    assert named().server == "https://other:1"


def test_data_wins_over_a_file_and_a_token_file_over_a_token(tmp_path: Path) -> None:
    (tmp_path / "tok").write_text("from-file\n")
    cluster = {
        "certificate-authority-data": base64.b64encode(b"INLINE").decode(),
        "certificate-authority": "missing.pem",
        "tls-server-name": "kubernetes",
        "insecure-skip-tls-verify": True,
    }
    source = written(tmp_path, tree({"token": "inline", "tokenFile": "tok"}, cluster))
    access = source()
    assert (access.ca, access.token) == (b"INLINE", "from-file")
    assert (access.server_name, access.insecure) == ("kubernetes", True)
    (tmp_path / "tok").write_text("rotated")
    assert source().token == "rotated"


def test_a_kubeconfig_that_is_written_anew_is_read_anew(tmp_path: Path) -> None:
    source = written(tmp_path, tree({"token": "one"}))
    assert source().token == "one"
    written(tmp_path, tree({"token": "two"}))
    assert source().token == "two"


@pytest.mark.parametrize(
    ("user", "named"),
    [
        ({"token": "t", "as-uid": "5"}, r"users\[\]\.user\.as: must name a user"),
        ({"token": 5}, r"user\.token: must be text"),
        ({"tokenFile": "nowhere"}, "tokenFile of .* cannot be read"),
        ({"client-certificate-data": "!"}, "client-certificate-data: must be base64"),
        ({"client-certificate-data": "Q0VSVA=="}, "go together"),
        ({"token": "two words"}, "holds no token"),
        ({"token": "line\r\nHost: x"}, "holds no token"),
        ({"token": "ä"}, "holds no token"),
    ],
)
def test_what_a_user_asks_for_in_vain_is_named(
    tmp_path: Path, user: dict[str, Any], named: str
) -> None:
    with pytest.raises(NoAccess, match=named):
        written(tmp_path, tree(user))()


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("[", "is not YAML"),
        ("[]", "is no kubeconfig"),
        ({"apiVersion": "v1"}, "current-context: is empty"),
        ({**tree({}), "current-context": "z"}, "contexts: holds none with the name 'z'"),
        ({**tree({}), "clusters": None}, "clusters: holds none with the name 'c'"),
        ({**tree({}), "users": []}, "users: holds none"),
        (tree({}, {"proxy-url": "socks5://p:1"}), "proxy-url: must be http://HOST:PORT"),
        (tree({}, {"insecure-skip-tls-verify": "false"}), "skip-tls-verify: must be true or false"),
        (tree({}, {"server": "api:6443"}), "https://HOST:PORT"),
        (tree({}, {"server": "https://api:port"}), "Port could not be cast"),
        (tree({"token": "t"}, {"server": "http://api:1"}), "over https only"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_named(
    tmp_path: Path, content: object, named: str
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    with pytest.raises(NoAccess, match=named):
        Kubeconfig(str(path))()


def found(environ: dict[str, str], at: Path) -> Source:
    return find(from_environment(environ), environ, at)


def test_settings_win_over_a_kubeconfig_and_that_over_the_pod(tmp_path: Path) -> None:
    account(tmp_path)
    assert found(IN_POD, tmp_path)().token == "t0"
    written(tmp_path, tree({"token": "k"}))
    environ = IN_POD | {"KUBECONFIG": str(tmp_path / "kubeconfig")}
    assert found(environ, tmp_path)().token == "k"
    (tmp_path / "ca.pem").write_bytes(b"CA3")
    environ |= {"K8S_API_ENDPOINT": "https://one:1", "K8S_CA_FILE": str(tmp_path / "ca.pem")}
    access = found(environ, tmp_path)()
    assert (access.server, access.token, access.ca) == ("https://one:1", "k", b"CA3")
    del environ["KUBECONFIG"]
    access = found(environ | {"K8S_INSECURE_SKIP_TLS_VERIFY": "true"}, tmp_path)()
    assert (access.token, access.insecure) == ("", True)
    with pytest.raises(NoAccess, match="K8S_KEY_FILE"):
        found(environ | {"K8S_CERT_FILE": str(tmp_path / "ca.pem")}, tmp_path)


def test_an_inline_kubeconfig(tmp_path: Path) -> None:
    config = DatastoreConfig(kubeconfig_inline=yaml.safe_dump(tree({"token": "k"})))
    assert find(config, {}, tmp_path)().token == "k"
    with pytest.raises(NoAccess, match="kubeconfigInline: current-context"):
        find(DatastoreConfig(kubeconfig_inline="a: b"), {}, tmp_path)


def test_of_several_files_the_first_word_counts_as_in_kubectl(tmp_path: Path) -> None:
    first, second = tmp_path / "one", tmp_path / "two"
    first.mkdir()
    second.mkdir()
    (second / "tok").write_text("of-the-second")
    content = tree({"token": "hidden"})
    users = [{"name": "v", "user": {"tokenFile": "tok"}}, {"name": "u", "user": {"token": "no"}}]
    contexts = [{"name": "x", "context": {"cluster": "c", "user": "v"}}]
    (first / "config").write_text(yaml.safe_dump({"contexts": contexts, "current-context": "x"}))
    (second / "config").write_text(
        yaml.safe_dump({**content, "current-context": "y", "users": users})
    )
    paths = f"{first / 'config'}:{tmp_path / 'nowhere'}:{second / 'config'}"
    access = Kubeconfig(paths)()
    assert (access.address, access.token) == (("api.example", 6443), "of-the-second")
    (second / "config").write_text("[")
    with pytest.raises(NoAccess, match="two/config is not YAML"):
        Kubeconfig(paths)()
    with pytest.raises(NoAccess, match=r"cannot be read.*/nowhere"):
        Kubeconfig(f"{tmp_path / 'nowhere'}:{tmp_path / 'neither'}")()


def test_a_proxy_and_impersonation_are_part_of_the_access(tmp_path: Path) -> None:
    proxy = {"proxy-url": "http://me:hidden@proxy:3128"}
    access = written(tmp_path, tree({"token": "t", "as": "jane"}, proxy))()
    assert access.proxy == Proxy("proxy", 3128, "me:hidden")
    assert access.acting_as == (("Impersonate-User", "jane"),)
    assert "hidden" not in repr(access)


def test_a_certificate_or_a_token_imports_no_other_client(tmp_path: Path) -> None:
    (tmp_path / "pod").mkdir()
    account(tmp_path / "pod")
    written(tmp_path, tree({"token": "t"}))
    certificate = tmp_path / "certificate"
    user = {"client-certificate-data": "Q0VSVA==", "client-key-data": "S0VZ"}
    certificate.write_text(yaml.safe_dump(tree(user, {"proxy-url": "http://p:1"})))
    code = (
        "import sys; from pathlib import Path\n"
        "from libcalico.kubernetes.access import Kubeconfig, in_cluster\n"
        f"Kubeconfig({str(tmp_path / 'kubeconfig')!r})()\n"
        f"Kubeconfig({f'{certificate}:/nowhere'!r})()\n"
        f"in_cluster({IN_POD!r}, Path({str(tmp_path / 'pod')!r}))()\n"
        "print(sorted({'kubernetes', 'requests', 'urllib3', 'oauthlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
