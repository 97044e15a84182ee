"""Secrets leave text and documents by name, by shape and by value; the rest stays."""

from __future__ import annotations

import base64
import json
import time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calicoctl.diags.redact import Redactor, harvest
from calicoctl.diags.secret_text import is_secret_name
from tests.support.patience import HANG

CANARY = "k4n4rYv0gel+42"
PEM = f"-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE{'A' * 50}\n{CANARY}\n-----END EC PRIVATE KEY-----"
LINES = [
    f"ETCD_PASSWORD={CANARY}",
    f"export K8S_TOKEN='{CANARY}' # for tests",
    f"password: {CANARY}",
    f'  etcdPassword: "{CANARY}"',
    f'{{"level":"info","password":"{CANARY}","x":1}}',
    f'level=info msg="login" token={CANARY} user=a',
    f'msg="{{\\"password\\":\\"{CANARY}\\"}}"',
    f"etcdctl --password {CANARY} get /",
    f"etcdctl --password={CANARY} get /",
    f"etcdctl --user root:{CANARY} get /",
    f"curl -u admin:{CANARY} http://x",
    f"connecting to https://calico:{CANARY}@10.0.0.1:2379/v3",
    f"Authorization: Bearer {CANARY}",
    f"sending header bearer {CANARY}",
    f'    md5-password "{CANARY}";',
    f'  password "{CANARY}";',
    f"ETCD_PASSWORD:  {CANARY}",
    f"a=1 secret_key={CANARY} b=2 other-token={CANARY}",
    f"wireguard PrivateKey = {CANARY}",
    f"client-key-data: {CANARY}",
    f"token: |\n  {CANARY}\n  {CANARY}\nnext: 1",
    f"key was\n{PEM}\nend",
    f"cut off\n{'B' * 40}\n{'B' * 40}\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\nMIIEvQ" + "B" * 40,
    f"jwt eyJhbGciOiJSUzI1NiJ9.{'B' * 40}.{'B' * 40} here",
]
HARMLESS = [
    "ETCD_KEY_FILE=/etc/calico/calico.key",
    "secretName: bgp-secrets",
    '{"secretKeyRef": {"name": "bgp", "key": "peer1"}}',
    "/var/run/secrets/kubernetes.io/serviceaccount/token",
    "http://10.0.0.1:2379/health",
    '-A cali-fw-cali123 -m comment --comment "cali:Pz5FC0rX" -j MARK',
    "10.65.0.0/26 via 10.99.1.2 dev eth0 proto 109",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "keyboard, tokenizer and 5 users: a:b",
]


@pytest.mark.parametrize("line", LINES)
def test_secrets_leave_a_text(line: str) -> None:
    clean = Redactor().text(f"before\n{line}\nafter")
    assert CANARY not in clean
    assert "B" * 20 not in clean
    assert "REDACTED" in clean
    assert clean.startswith("before\n")


@pytest.mark.parametrize("line", HARMLESS)
def test_the_rest_stays(line: str) -> None:
    assert Redactor().text(line) == line


def test_a_value_once_known_leaves_everything() -> None:
    redactor = Redactor([CANARY, PEM])
    for spelling in (
        CANARY,
        quote(CANARY, safe=""),
        base64.b64encode(CANARY.encode()).decode(),
        json.dumps(PEM),
        "MHcCAQEE" + "A" * 50,
    ):
        assert redactor.text(f"x {spelling} y") in ("x REDACTED y", 'x "REDACTED" y')
    assert CANARY not in redactor.document(json.dumps({CANARY: [CANARY]}))


TREE = {
    "kind": "DaemonSet",
    "env": [
        {"name": "ETCD_PASSWORD", "value": CANARY},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "IP", "value": "autodetect"},
    ],
    "args": ["--password", CANARY, f"--token={CANARY}", "--v", "2"],
    "annotations": {"last-applied": json.dumps({"policy": {"k8s_auth_token": CANARY}})},
    "items": [{"kind": "Secret", "data": {"x": CANARY}, "metadata": {"name": "s"}}],
    "spec": {"password": {"secretKeyRef": {"name": "bgp", "key": CANARY}}, "etcdKey": CANARY},
    "tls": PEM,
    "automountServiceAccountToken": True,
}


def test_documents_keep_their_form() -> None:
    clean = json.loads(Redactor().document(json.dumps(TREE)))
    assert CANARY not in json.dumps(clean)
    assert clean["env"][2] == {"name": "IP", "value": "autodetect"}
    assert clean["env"][1]["valueFrom"]["secretKeyRef"]["name"] == "s"
    assert clean["args"][3:] == ["--v", "2"]
    assert clean["items"][0]["metadata"] == {"name": "s"}
    assert clean["automountServiceAccountToken"] is True
    assert clean["spec"]["password"]["secretKeyRef"]["name"] == "bgp"


def test_yaml_files() -> None:
    text = (
        f"users:\n- name: a\n  user:\n    token: {CANARY}\n    client-key-data: >\n      {CANARY}\n"
    )
    clean = Redactor().document(text)
    assert CANARY not in clean
    assert "name: a" in clean
    assert CANARY not in Redactor().document(f"not: yaml: at all\npassword: {CANARY}\n")


def test_what_is_hidden_by_name_is_learnt() -> None:
    assert set(harvest(TREE)) >= {CANARY}
    assert "autodetect" not in set(harvest(TREE))


LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(24)
)


@pytest.mark.parametrize(
    "text",
    [
        LAUGHS,
        "a: &a {b: *a}\n",
        "a: " + "[" * 3000 + "]" * 3000 + "\n",
        '{"a":' * 3000 + "1" + "}" * 3000,
        json.dumps({"a": "[" * 3000 + "]" * 3000}),
        "when: 2001-99-99\n",
    ],
    ids=["aliases", "alias of itself", "deep YAML", "deep JSON", "deep text in JSON", "no date"],
)
def test_a_document_that_means_something_endless_counts_as_text(text: str) -> None:
    found = Redactor([CANARY]).document(f"{text}# password: {CANARY}\n" if text[0] != "{" else text)
    assert CANARY not in found
    assert len(found) < 4 * len(text) + 200


def test_names() -> None:
    for name in ("ETCD_PASSWORD", "k8sAPIToken", "etcdKey", "client-key-data", "md5Passphrase"):
        assert is_secret_name(name), name
    for name in ("ETCD_KEY_FILE", "passwordFile", "secretKeyRef", "key", "monkey", "tokenTTL"):
        assert not is_secret_name(name), name


@given(
    st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=6, max_size=30),
    st.sampled_from(["{}", "x={}", '"{}"', "a {} b", "https://u:{}@h/", '{{"a":"{}"}}']),
)
def test_no_known_value_survives(value: str, around: str) -> None:
    redactor = Redactor([value])
    if value in "REDACTED" or value in around:
        return
    for spelled in (value, json.dumps(value)[1:-1]):
        assert value not in redactor.text(around.format(spelled)).replace("REDACTED", "\n")


def test_a_large_log_takes_moderate_time() -> None:
    line = "2026-11-21 12:00:00.000 [INFO] endpoint cali0123456789a: 12 rules, secret of 3 sets\n"
    blob = "A" * 100_000 + "\n"
    start = time.process_time()
    Redactor([CANARY]).text(line * 10_000 + blob * 2)
    assert time.process_time() - start < HANG
