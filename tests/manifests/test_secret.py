"""`./run manifests secret`: three PEM files become the Secret; what etcd would refuse is named."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml

from manifests.__main__ import main
from tests.manifests.rendered import FOLDER, by_name
from tests.support.certificates import Authority


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pem")
    authority = Authority(folder, "ca")
    mine = authority.issue("client", usage="clientAuth")
    other = authority.issue("other", usage="clientAuth")
    return {"key": mine.key, "cert": mine.cert, "ca": authority.cert, "other": other.key}


def options(files: dict[str, Path], **changed: Path) -> list[str]:
    chosen = {**files, **changed}
    return [word for name in ("key", "cert", "ca") for word in (f"--{name}", str(chosen[name]))]


@pytest.mark.promise("M-166")
def test_printed(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["secret", *options(files)]) == 0
    found = yaml.safe_load(capsys.readouterr().out)
    assert (found["kind"], found["type"]) == ("Secret", "Opaque")
    assert found["metadata"] == {"name": "calico-etcd-secrets", "namespace": "kube-system"}
    for name in ("key", "cert", "ca"):
        assert base64.b64decode(found["data"][f"etcd-{name}"]) == files[name].read_bytes()


@pytest.mark.promise("M-166")
def test_filled_in_and_all_else_as_it_was(files: dict[str, Path], tmp_path: Path) -> None:
    before = (FOLDER / "calico-etcd.yaml").read_text()
    mine = tmp_path / "calico-etcd.yaml"
    mine.write_text(before)
    for _ in range(2):
        assert main(["secret", *options(files), "--into", str(mine)]) == 0
    found = by_name(mine.read_text())
    data = found.pop("Secret/calico-etcd-secrets")["data"]
    assert base64.b64decode(data["etcd-key"]) == files["key"].read_bytes()
    expected = by_name(before)
    expected.pop("Secret/calico-etcd-secrets")
    assert found == expected
    differing = zip(before.splitlines(), mine.read_text().splitlines(), strict=True)
    assert sum(one != two for one, two in differing) == 3


def test_what_cannot_be_is_named(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, locked = tmp_path / "text", tmp_path / "locked"
    text.write_text("no PEM")
    locked.write_text(
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nx\n-----END ENCRYPTED PRIVATE KEY-----"
    )
    both = tmp_path / "both"
    both.write_bytes(files["cert"].read_bytes() + files["key"].read_bytes())
    for changed, why in (
        ({"key": files["cert"]}, f"etcd-key: {files['cert']}: holds no PEM block PRIVATE KEY"),
        ({"cert": text}, f"etcd-cert: {text}: holds no PEM block CERTIFICATE"),
        ({"ca": tmp_path / "none"}, f"etcd-ca: {tmp_path}/none: No such file"),
        ({"key": files["other"]}, f"{files['other']}: is not the key of {files['cert']}"),
        ({"key": locked}, f"etcd-key: {locked}: the key is encrypted"),
        ({"cert": both}, f"etcd-cert: {both}: holds a private key"),
    ):
        assert main(["secret", *options(files, **changed)]) == 1
        assert why in capsys.readouterr().err
    assert main(["secret", *options(files), "--into", str(FOLDER / "canal.yaml")]) == 1
    assert "'etcd-key' 0 times" in capsys.readouterr().err
