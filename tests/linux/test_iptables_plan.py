"""IPT-1 to IPT-4 without a kernel: hashes as on a real Calico node, and plans that do what we want.

The plan is applied to a model of iptables-restore from any state to any desire; afterwards our
rules are as desired and everybody else's are as before.
"""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linux.iptables.detect import Backend
from linux.iptables.hashes import HashScheme
from linux.iptables.plan import make_plan
from linux.iptables.render import Desired, Renderer
from linux.iptables.save import FOREIGN, parse_save

SCHEME = HashScheme("our:", ("our-", "ourold-"))
CALICO = HashScheme("cali:", ("cali-",))

BUILT_IN = ("INPUT", "FORWARD")
Model = dict[str, list[str]]


def _save(model: Model, table: str = "filter") -> str:
    lines = [
        "# Generated",
        "*nat",
        ":FORWARD ACCEPT [0:0]",
        ":our-x - [0:0]",
        "COMMIT",
        f"*{table}",
    ]
    lines += [f":{name} {'ACCEPT' if name in BUILT_IN else '-'} [0:0]" for name in model]
    lines += [f"-A {name} {rule}" for name, rules in model.items() for rule in rules]
    return "\n".join([*lines, "COMMIT", "# Completed", ""])


def _restore(model: Model, lines: tuple[str, ...]) -> Model:
    after = {name: list(rules) for name, rules in model.items()}
    for line in lines:
        if line.startswith(":"):
            after[line[1:].split(" ")[0]] = []
            continue
        verb, chain, rest = (*line.split(" ", 2), "")[:3]
        rules = after[chain]
        number = re.match(r"(\d+)(?: (.*))?$", rest)
        if verb == "-A":
            rules.append(rest)
        elif verb == "-I":
            assert number is not None
            rules.insert(int(number[1]) - 1, number[2])
        elif verb == "-R":
            assert number is not None
            rules[int(number[1]) - 1] = number[2]
        elif verb == "-D" and number is not None:
            del rules[int(number[1]) - 1]
        elif verb == "-D":
            rules.remove(rest)
        elif verb == "-X":
            assert rules == []
            del after[chain]
        else:
            raise AssertionError(line)
    for name, rules in after.items():
        for rule in rules:
            target = re.search(r"--jump (our\S*)", rule)
            assert target is None or target[1] in after, f"{name}: {rule}"
    return after


_RULES = st.lists(
    st.sampled_from(
        ["--jump ACCEPT", "--jump DROP", '-m comment --comment "two words" --jump ACCEPT']
    ),
    max_size=4,
).map(tuple)
_CHAINS = st.dictionaries(st.sampled_from(["our-a", "our-b", "our-c"]), _RULES)
_KERNEL = st.dictionaries(st.sampled_from(["INPUT", "FORWARD"]), _RULES)
_FOREIGN = st.lists(st.sampled_from(["-s 192.0.2.1/32 -j ACCEPT", "-j KUBE-FORWARD"]), max_size=3)


@st.composite
def _desires(draw: st.DrawFn) -> Desired:
    chains = draw(_CHAINS)
    inserts = dict(draw(_KERNEL))
    for name in chains:
        inserts["FORWARD"] = (*inserts.get("FORWARD", ()), f"--jump {name}")
    return Desired(chains, inserts, draw(_KERNEL))


@given(
    backend=st.sampled_from(["nft", "legacy"]),
    desires=st.lists(_desires(), min_size=1, max_size=4),
    foreign=_FOREIGN,
    meddling=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=3),
)
def test_any_state_becomes_any_desire(
    backend: Backend,
    desires: list[Desired],
    foreign: list[str],
    meddling: list[tuple[int, int]],
) -> None:
    model: Model = {
        "INPUT": [],
        "FORWARD": list(foreign),
        "KUBE-FORWARD": ["-j our-a"],
        "ourold-x": ["-j ACCEPT"],
    }
    renderer = Renderer(SCHEME)
    for desired in desires:
        wanted = renderer.render(desired)
        actual = parse_save(_save(model), "filter", SCHEME)
        plan = make_plan(actual, wanted, backend)
        model = _restore(model, plan.lines)
        for name, rules in desired.chains.items():
            assert [rule.split(" ", 4)[4] for rule in model[name]] == list(rules)
        assert {name for name in model if SCHEME.owns(name)} == set(desired.chains)
        for name, theirs in (("INPUT", []), ("FORWARD", foreign)):
            ours = [rule.split(" ", 4)[4] for rule in model[name] if '"our:' in rule]
            first, last = desired.inserts.get(name, ()), desired.appends.get(name, ())
            assert ours == [*first, *last]
            middle = model[name][len(first) : len(model[name]) - len(last)]
            assert middle == theirs
        assert model["KUBE-FORWARD"] == ["-j our-a"]
        again = parse_save(_save(model), "filter", SCHEME)
        assert again.chains == plan.after.chains
        assert make_plan(again, wanted, backend).lines == ()
        assert make_plan(plan.after, wanted, backend).lines == ()
        for place, rule in meddling:
            name = sorted(model)[place % len(model)]
            if SCHEME.owns(name) and model[name]:
                del model[name][rule % len(model[name])]


@given(
    versions=st.lists(
        st.tuples(
            st.lists(st.sampled_from(["--jump A", "--jump B", "--jump C", "-p tcp", "--jump D"])),
            st.booleans(),
            st.booleans(),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_a_chain_that_changes_has_the_hashes_of_one_that_is_new(
    versions: list[tuple[list[str], bool, bool]],
) -> None:
    kept = Renderer(SCHEME)
    for rules, unordered, closed in versions:
        name = "our-bin"
        again = kept.chain(name, rules, unordered=unordered, closed=closed)
        fresh = Renderer(SCHEME).chain(name, rules, unordered=unordered, closed=closed)
        assert (again.hashes, again.rules) == (fresh.hashes, fresh.rules)


ALIEN = "-j ACCEPT"
DISPATCH = ("-i our1 --jump A", "-i our2 --jump B", "--jump DROP")


@pytest.mark.parametrize("backend", ["nft", "legacy"])
@pytest.mark.parametrize("sweep", [False, True])
@pytest.mark.parametrize("closed", [False, True])
def test_what_others_took_or_put_into_a_chain_is_mended(
    backend: Backend, sweep: bool, closed: bool
) -> None:
    """Above all the drop at the end of a dispatch chain, and an accept of theirs in front."""
    desired = Desired({"our-a": DISPATCH}, unordered={"our-a"}, closed={"our-a"} if closed else ())
    wanted = Renderer(SCHEME).render(desired)
    whole = _restore({}, make_plan(parse_save(_save({}), "filter", SCHEME), wanted, backend).lines)
    for kept in product([True, False], repeat=3):
        rules = [rule for rule, stays in zip(whole["our-a"], kept, strict=True) if stays]
        for place in (None, *range(len(rules) + 1)):
            if place is None and not closed:
                continue  # without an order, and with nothing of others, any place will do
            found = list(rules)
            if place is not None:
                found.insert(place, ALIEN)
            actual = parse_save(_save({"our-a": found}), "filter", SCHEME)
            lines = make_plan(actual, wanted, backend, sweep=sweep).lines
            after = _restore({"our-a": found}, lines)["our-a"]
            assert sorted(after) == sorted(whole["our-a"])
            assert not closed or after[-1] == whole["our-a"][-1]


def test_only_changed_chains_are_in_the_plan() -> None:
    renderer = Renderer(SCHEME)
    chains = {f"our-{n}": ("--jump ACCEPT",) for n in range(100)}
    before = make_plan(parse_save("", "filter", SCHEME), renderer.render(Desired(chains)), "nft")
    assert len(before.written) == 100
    changed = {**chains, "our-7": ("--jump DROP",)}
    plan = make_plan(before.after, renderer.render(Desired(changed)), "nft")
    assert plan.written == ("our-7",)
    assert [line.split(" ")[0] for line in plan.lines] == [":our-7", "-A"]


def test_a_chain_that_only_grows_is_not_flushed() -> None:
    renderer = Renderer(SCHEME)
    small = renderer.render(Desired({"our-a": ("--jump RETURN",)}))
    large = renderer.render(Desired({"our-a": ("--jump RETURN", "--jump DROP")}))
    start = make_plan(parse_save("", "filter", SCHEME), small, "nft")
    (line,) = make_plan(start.after, large, "nft").lines
    assert line.startswith("-A our-a ")


# Rules of a node that ran Calico v3.32 (text as it was rendered there), and their hashes in the
# dump: ours must be equal, so that taking over a node rewrites nothing that is the same.
GOLDEN = [
    ("INPUT", ["--jump cali-INPUT"], ["Cz_u1IQiXIMmKD4c"]),
    (
        "FORWARD*appends*",
        [
            '-m comment --comment "Policy explicitly accepted packet." '
            "-m mark --mark 0x10000/0x10000 --jump ACCEPT",
            "--jump MARK --set-mark 0x10000/0x10000",
        ],
        ["S93hcgKJrXEqnTfs", "mp77cMpurHhyjLrM"],
    ),
    ("cali-OUTPUT", ["--jump MARK --set-mark 0/0x1b0000"], ["clI8WObfCl4yhr60"]),
    (
        "cali-from-wl-dispatch",
        [
            "--in-interface cali0761ccbeace --goto cali-fw-cali0761ccbeace",
            '-m comment --comment "Unknown interface" --jump DROP',
        ],
        ["dTrlZZiLiD2aM9s3", "XDsVT1HXQRu69hCR"],
    ),
]


@pytest.mark.parametrize(("chain", "rules", "hashes"), GOLDEN)
def test_hashes_are_those_of_a_calico_node(chain: str, rules: list[str], hashes: list[str]) -> None:
    assert list(CALICO.hashes(chain, rules)) == hashes


def test_a_dump_of_a_calico_node_is_read() -> None:
    dump = """\
# Warning: something else
*filter
:FORWARD ACCEPT [0:0]
:KUBE-FORWARD - [0:0]
:cali-FORWARD - [12:345]
:cali-empty - [0:0]
-A FORWARD -m comment --comment "cali:wUHhoiAYhphO9Mso" -j cali-FORWARD
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -j cali-FORWARD
-A KUBE-FORWARD -j cali-FORWARD
-A cali-FORWARD -i cali+ -m comment --comment "cali:tAzwBLPaV-j53OOZ" -j cali-from-wl-dispatch
-A cali-FORWARD -j ACCEPT
COMMIT
"""
    actual = parse_save(dump, "filter", CALICO)
    assert actual.chains == {"cali-FORWARD": ("tAzwBLPaV-j53OOZ", ""), "cali-empty": ()}
    assert list(actual.kernel) == ["FORWARD"]
    first, second, third = actual.kernel["FORWARD"]
    assert (first.hash, first.ours) == ("wUHhoiAYhphO9Mso", True)
    assert second == FOREIGN
    assert (third.hash, third.text) == ("", "-j cali-FORWARD")
    assert parse_save(dump, "nat", CALICO).chains == {}


@pytest.mark.parametrize(
    ("desired", "message"),
    [
        (Desired({"INPUT": ()}), "not ours"),
        (Desired({"our-" + "x" * 25: ()}), "28 characters"),
        (Desired({"our-a b": ()}), "28 characters"),
        (Desired({"our-a": ("--jump ACCEPT\nCOMMIT",)}), "line break"),
        (Desired({}, {"FORWARD": ("--jump X\n-F",)}), "line break"),
    ],
)
def test_what_restore_could_misread_is_refused(desired: Desired, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Renderer(SCHEME).render(desired)
