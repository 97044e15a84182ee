"""What `get` can do beyond Calico's: labels, ages, names, JSON paths; what contradicts itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from calicoctl.listing import label_query
from calicoctl.listing.age import UNKNOWN, age_text, duration_text
from libcalico.errors import InvalidValue
from tests.calicoctl.conftest import Ctl

HEAD = "apiVersion: projectcalico.org/v3\n"


def pool(name: str, cidr: str, labels: str = "{}") -> str:
    metadata = f"{{name: {name}, labels: {labels}}}"
    return f"kind: IPPool\n{HEAD}metadata: {metadata}\nspec: {{cidr: {cidr}}}\n"


POOLS = "---\n".join(
    (
        pool("p1", "10.1.0.0/16", "{app: web, tier: front}"),
        pool("p2", "10.2.0.0/16", "{app: db, tier: ''}"),
        pool("p3", "10.3.0.0/16"),
    )
)


@pytest.fixture
def pools(ctl: Ctl) -> Ctl:
    """Three pools, two of them with labels."""
    assert ctl("apply", "-f", "-", stdin=POOLS).code == 0
    return ctl


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (312, "5m12s"),
        (600, "10m"),
        (10799, "179m"),
        (10800, "3h"),
        (15000, "4h10m"),
        (28800, "8h"),
        (172799, "47h"),
        (172800, "2d"),
        (187200, "2d4h"),
        (691200, "8d"),
        (2 * 365 * 86400 - 1, "729d"),
        (2 * 365 * 86400, "2y"),
        (2 * 365 * 86400 + 17 * 86400, "2y17d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_ages_are_written_as_kubectl_does(seconds: int, text: str) -> None:
    assert duration_text(seconds) == text
    now = datetime(2026, 11, 27, tzinfo=UTC)
    began = (now - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert age_text(began, now) == text


def test_what_is_no_age() -> None:
    now = datetime(2026, 11, 27, tzinfo=UTC)
    for created in ("", "yesterday", "2026-11-27T00:00:00"):
        assert age_text(created, now) == UNKNOWN
    assert age_text("2026-11-27T00:01:00Z", now) == "<invalid>"
    assert age_text("2026-11-27T00:00:01Z", now) == "0s"


LABELS: list[dict[str, str]] = [
    {"app": "web", "tier": "front"},
    {"app": "db", "tier": ""},
    {},
]


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("app=web", [0]),
        ("app==web", [0]),
        ("app == web", [0]),
        ("app!=web", [1, 2]),
        ("app in (web, db)", [0, 1]),
        ("app in (web),tier=front", [0]),
        ("app in (web,db), !gone", [0, 1]),
        ("app notin (web)", [1, 2]),
        ("app", [0, 1]),
        ("!app", [2]),
        ("tier=", [1]),
        # Calico's own language.
        ("app == 'web'", [0]),
        ("app == 'web' || !has(app)", [0, 2]),
        ("app in {'web', 'db'} && tier != 'front'", [1]),
        ("app starts with 'w'", [0]),
        ("all()", [0, 1, 2]),
    ],
)
def test_both_languages_of_labels(selector: str, chosen: list[int]) -> None:
    selects = label_query.matcher(selector)
    assert [at for at, labels in enumerate(LABELS) if selects(labels)] == chosen


@pytest.mark.parametrize(
    "selector", ["", " ", "app=", "app in (a", "=web", "app=a b", "a,,b", "app>1"]
)
def test_a_selector_that_is_none(selector: str) -> None:
    if selector == "app=":
        assert label_query.matcher(selector)({"app": ""})
        return
    with pytest.raises(InvalidValue, match=r"--selector: .* is not valid: must be labels"):
        label_query.matcher(selector)


def test_a_selector_chooses_in_every_shape(pools: Ctl) -> None:
    assert [
        line.split()[0] for line in pools("get", "pools", "--selector", "app").out.splitlines()[1:3]
    ] == ["p1", "p2"]
    assert pools("get", "pools", "--selector", "app=db", "-o", "name").out == (
        "ippool.projectcalico.org/p2\n"
    )
    none = pools("get", "pools", "--selector", "app=nothing", "-o", "json")
    assert '"items": []' in none.out
    for wrong in (("p1",), ("-f", "x.yaml")):
        kind = () if wrong[0] == "-f" else ("pools",)
        done = pools("get", *kind, *wrong, "--selector", "app", stdin="")
        assert done.code == 1
    assert "leave names and files out" in pools("get", "pools", "p1", "--selector", "app").err


def test_names_are_read_again(pools: Ctl) -> None:
    names = pools("get", "pools", "-o", "name").out.split()
    assert names == [f"ippool.projectcalico.org/p{number}" for number in (1, 2, 3)]
    assert pools("get", *names, "-o", "name").out.split() == names
    assert pools("get", "ippool/p1", "pool/p2", "--no-headers").out.split()[0] == "p1"
    done = pools("delete", *names[:2])
    assert (done.code, done.out) == (0, "Successfully deleted 2 'IPPool' resource(s)\n")
    mixed = pools("get", "ippool/p3", "p4")
    assert (mixed.code, mixed.err.splitlines()[0]) == (
        1,
        "'p4': write each as KIND/NAME, or KIND NAME...",
    )
    assert "Did you mean 'ippools'?" in pools("get", "ippol/p3").err


def test_a_column_of_ages_and_a_table_without_headings(pools: Ctl) -> None:
    plain = pools("get", "pools").out
    aged = pools("get", "pools", "--age").out
    for before, after in zip(plain.splitlines(), aged.splitlines(), strict=True):
        # A column more behind the others, which stay to the byte.
        assert after.startswith(before)
    assert aged.splitlines()[0].endswith("AGE   ")
    ages = [line.split()[-1] for line in aged.splitlines()[1:4]]
    assert all(age[-1] in "smh" for age in ages)
    bare = pools("get", "pools", "--no-headers").out
    assert bare == "".join(plain.splitlines(keepends=True)[1:-1])
    assert pools("get", "pools", "-o", "custom-columns=NAME", "--no-headers").out.split() == [
        *("p1", "p2", "p3"),
    ]


def test_json_paths_of_a_kind_of_one_and_of_several(pools: Ctl) -> None:
    listed = pools("get", "pools", "-o", "jsonpath={.items[*].spec.cidr}")
    assert listed.out == "10.1.0.0/16 10.2.0.0/16 10.3.0.0/16"
    single = pools("get", "pool", "p1", "-o", 'jsonpath={.metadata.name}{"\\n"}')
    assert single.out == "p1\n"
    several = pools("get", "pool", "p1", "p3", "-o", "jsonpath={.kind} {.items[*].metadata.name}")
    assert several.out == "List p1 p3"
    chosen = pools("get", "pools", "-o", 'jsonpath={.items[?(@.metadata.labels.app=="db")].kind}')
    assert chosen.out == "IPPool"
    wrong = pools("get", "pools", "-o", "jsonpath={.items[7]}")
    assert (wrong.code, wrong.out) == (1, "")
    assert wrong.err == "jsonpath: index 7 is out of bounds: the list has 3 items\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("get pools -o jsom", "Did you mean 'json'?"),
        ("get pools -o custom-columns=CDIR", "SELECTOR, VXLANMODE. Did you mean 'CIDR'?"),
        ("get pools -o jsonpath", "-o jsonpath needs a value: jsonpath=TEMPLATE"),
        ("get pools -o jsonpath={.a", "a brace or quote is not closed"),
        ("get pools -o jsonpath-file=/nowhere", "cannot read the template /nowhere"),
        ("get pools -o json --age", "--age is for tables; -o json is none"),
        ("get pools -o name --no-headers", "--no-headers is for tables; -o name is none"),
        ("get pools --output-watch-events", "--output-watch-events needs --watch"),
        ("get pools -w --output-watch-events -o name", "has no place in -o name"),
        ("get pools -w --export", "give either --watch or --export"),
        ("get np web -A", "a name is that of one namespace: give --namespace, not -A"),
        ("get pools -n x -A", "cannot use both --namespace and --all-namespaces"),
        ("get pools --selector", "Option '--selector' requires an argument."),
        ("get pools --selector =", "--selector: '=' is not valid"),
        ("get pools ''", "resource name may not be empty"),
    ],
)
def test_what_contradicts_itself_is_said(ctl: Ctl, words: str, told: str) -> None:
    done = ctl(*(word.strip("'") for word in words.split()))
    assert (done.code, done.out) == (1, "")
    assert told in done.err


def test_a_template_from_a_file(pools: Ctl, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("templates") / "t"
    file.write_text("{range .items[*]}{.metadata.name};{end}")
    assert pools("get", "pools", "-o", f"jsonpath-file={file}").out == "p1;p2;p3;"
