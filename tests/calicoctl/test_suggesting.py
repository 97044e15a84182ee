"""What was probably meant: commands, flags, kinds, fields."""

from __future__ import annotations

import pytest

from calicoctl import aliases
from calicoctl.cli import COMMANDS
from calicoctl.main import run
from calicoctl.terminal import suggesting
from libcalico.errors import UnsupportedKind
from libcalico.model.kinds import KINDS
from tests.calicoctl.conftest import Ctl


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("gett nodes", "No such command 'gett'. Did you mean 'get'?\n"),
        ("GET nodes", "No such command 'GET'. Did you mean 'get'?\n"),
        ("describe node n", "Did you mean 'get KIND NAME -o yaml'?\n"),
        ("ipam shw", "No such command 'shw'. Did you mean 'show'?\n"),
        ("node bgp pln", "No such command 'pln'. Did you mean 'plan'?\n"),
        ("datastore migrate exprt", "Did you mean 'export'?\n"),
        ("get nodes --ouptut json", "No such option '--ouptut'. Did you mean '--output'?\n"),
        ("get nods", "resource type 'nods' is not supported. Did you mean 'nodes'?\n"),
        ("delete ipol x", "Did you mean 'ippools'"),
        ("get nodes,pools", "'nodes,pools' is not supported: one kind at a time"),
        ("get all", "'all' is not supported: one kind at a time"),
        ("get pods", "'pods' is not supported: kubectl shows pods; workloadendpoints are theirs"),
    ],
)
def test_a_word_that_is_nearly_right(
    words: str, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(words.split()) == 1
    assert told in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "path"),
    [("get nodes -o", "get"), ("node bgp plan -f", "node bgp plan"), ("ipam shw", "ipam")],
)
def test_the_help_of_the_command_is_named(
    words: str, path: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(words.split()) == 1
    assert f"Use 'calicoctl {path} --help'" in capfd.readouterr().err


def test_what_is_near_to_nothing_lists_what_there_is() -> None:
    assert suggesting.of_command("banana", COMMANDS) == ""
    with pytest.raises(UnsupportedKind, match="'banana' is not supported; supported: BGPConf"):
        aliases.kind_of("banana")


def test_every_kind_with_two_letters_turned_is_found() -> None:
    for name in aliases.SERVED:
        plural = KINDS[name].plural
        turned = plural[:1] + plural[2] + plural[1] + plural[3:]
        if turned == plural:
            continue
        with pytest.raises(UnsupportedKind, match=f"Did you mean .*'{plural}'"):
            aliases.kind_of(turned)


@pytest.mark.parametrize(
    ("kind", "path", "told"),
    [
        ("IPPool", "spec.cdir", " (did you mean 'cidr'?)"),
        ("IPPool", "spec.natoutgoing", " (did you mean 'natOutgoing'?)"),
        ("IPPool", "cidr", " (did you mean 'spec.cidr'?)"),
        ("IPPool", "metadata.lables", " (did you mean 'labels'?)"),
        ("IPPool", "spec.banana", ""),
        ("NetworkPolicy", "spec.ingress[0].acton", " (did you mean 'action'?)"),
        ("NetworkPolicy", "spec.ingress[10].source.notports", " (did you mean 'notPorts'?)"),
        ("NetworkPolicy", "spec.nothere.deeper", ""),
        ("BGPConfiguration", "spec.communities[0].nam", " (did you mean 'name'?)"),
    ],
)
def test_fields_at_every_depth(kind: str, path: str, told: str) -> None:
    assert suggesting.of_field(KINDS[kind].type, path) == told


def test_a_misspelled_field_of_a_file_and_of_a_patch(ctl: Ctl) -> None:
    pool = "{kind: IPPool, apiVersion: projectcalico.org/v3, metadata: {name: p}, spec: {%s}}"
    wrong = ctl("apply", "-f", "-", stdin=pool % "cidr: 10.0.0.0/16, blokSize: 26")
    assert "unknown field 'spec.blokSize' (did you mean 'blockSize'?)" in wrong.err
    kind = ctl("apply", "-f", "-", stdin=(pool % "cidr: 10.0.0.0/16").replace("IPPool", "IPPol"))
    assert "'IPPol' is not supported. Did you mean 'IPPool'?" in kind.err
    assert ctl("apply", "-f", "-", stdin=pool % "cidr: 10.0.0.0/16").code == 0
    patched = ctl("patch", "ippool", "p", "-p", '{"spec": {"natOutgoin": true}}')
    assert "spec.natOutgoin" in patched.err
    assert "(did you mean 'natOutgoing'?)" in patched.err
