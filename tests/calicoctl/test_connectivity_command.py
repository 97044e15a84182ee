"""`connectivity test`: words that do not fit are refused before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.calicoctl.conftest import Ctl

VIA = ("--via", "sh -c true {pod}")


@pytest.mark.parametrize(("words", "complaint"), [
    (("--outside", "x"), "HOST:PORT"),
    (("--service", "x:0"), "HOST:PORT"),
    (("--via-node", "ssh {node}"), "stands with --via only"),
    (("-n", "default"), "stands with --via only"),
    (("--selector", "all()"), "stands with --via only"),
    ((*VIA, "--image", "x"), "stands without --via"),
    ((*VIA, "--node", "nx"), "--node"),
    (("--port", "80"), "1024"),
    (("--pods", "0", *VIA), "--pods"),
    (VIA, "no pod is there to test with"),
])  # fmt: skip
def test_bad_words_are_named(ctl: Ctl, words: tuple[str, ...], complaint: str) -> None:
    done = ctl("connectivity", "test", *words)
    assert (done.code, done.out) == (1, "")
    assert complaint in done.err


def test_without_kubectl_it_says_what_to_do(
    ctl: Ctl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("calicoctl.diags.programs.find", lambda _: None)
    done = ctl("connectivity", "test")
    assert done.code == 1
    assert "kubectl is not installed" in done.err
    assert "--via" in done.err


def test_cleanup_where_nothing_is(ctl: Ctl) -> None:
    done = ctl("connectivity", "test", *VIA, "--cleanup-only")
    assert (done.code, done.out) == (0, "")
