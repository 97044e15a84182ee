"""kubectl's dialect of JSON paths, by what its documentation says and what it prints."""

from __future__ import annotations

import pytest

from calicoctl import jsonpath

DATA = {
    "kind": "List",
    "items": [
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.1", "labels": {"kubernetes.io/hostname": "127.0.0.1"}},
            "status": {"capacity": {"cpu": 4}, "addresses": [{"type": "LegacyHostIP"}]},
        },
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.2"},
            "status": {
                "capacity": {"cpu": 8},
                "ready": True,
                "addresses": [{"type": "LegacyHostIP"}, {"type": "other", "address": "1.2.3.4"}],
            },
        },
    ],
    "users": [
        {"name": "myself", "user": {}},
        {"name": "e2e", "user": {"username": "admin", "password": "it's", "order": 10.5}},
    ],
    "numbers": [0, 1, 2, 3, 4],
    "text": "<b>",
    "none": None,
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("kind is {.kind}", "kind is List"),
        ("kind is {@.kind}", "kind is List"),
        ("{$.kind}", "List"),
        ("{.kind}{.kind}", "ListList"),
        ("{['kind']}", "List"),
        ("{.missing}|{.missing.deeper[*]}", "|"),
        ("{.items[*].metadata.name}", "127.0.0.1 127.0.0.2"),
        (".items[*].metadata.name", "127.0.0.1 127.0.0.2"),
        ("$.items[0].metadata.name", "127.0.0.1"),
        ("{.items[*]['metadata.name', 'status.capacity']}", ""),
        ("{.items[*]['kind', 'status']}", None),
        ("{..name}", "127.0.0.1 127.0.0.2 myself e2e"),
        ("{..['name']}", "127.0.0.1 127.0.0.2 myself e2e"),
        ("{.users[0:2].name}", "myself e2e"),
        ('{.users[?(@.name=="e2e")].user.password}', "it's"),
        ("{.users[?(@.name == 'e2e')].user.username}", "admin"),
        ('{.users[?(@.name!="e2e")].name}', "myself"),
        ("{.users[?(@.user.order>10)].name}", "e2e"),
        ("{.users[?(@.user.order<=10.5)].name}", "e2e"),
        ("{.users[?(@.user.username)].name}", "e2e"),
        ("{.items[?(@.status.ready==true)].metadata.name}", "127.0.0.2"),
        ("{.items[0].metadata.labels.kubernetes\\.io/hostname}", "127.0.0.1"),
        ("{.items[0].metadata.labels['kubernetes.io/hostname']}", "127.0.0.1"),
        ("{.numbers[-1]}", "4"),
        ("{.numbers[1:]}", "1 2 3 4"),
        ("{.numbers[:2]}", "0 1"),
        ("{.numbers[-2:]}", "3 4"),
        ("{.numbers[0:5:2]}", "0 2 4"),
        ("{.numbers[0,2]}", "0 2"),
        ("{.numbers[*]}", "0 1 2 3 4"),
        ("{.numbers.*}", "0 1 2 3 4"),
        ("{.numbers}", "[0,1,2,3,4]"),
        ("{.items[1].status.capacity}", '{"cpu":8}'),
        ("{.users[1].user}", '{"order":10.5,"password":"it\'s","username":"admin"}'),
        ("{.text}", "<b>"),
        ("{.none}", "<nil>"),
        ("{.users[1].user.order}", "10.5"),
        ("{.items[1].status.ready}", "true"),
        ('{"a\\tb\\n"}', "a\tb\n"),
        ("{'{'}", "{"),
        (
            "{range .items[*]}[{.metadata.name}, {.status.capacity.cpu}] {end}",
            "[127.0.0.1, 4] [127.0.0.2, 8] ",
        ),
        ('{range .items[*]}{.metadata.name}{"\\t"}{end}|', "127.0.0.1\t127.0.0.2\t|"),
        (
            "{range .items[*]}{.metadata.name}:{range .status.addresses[*]} {.type}{end};{end}",
            "127.0.0.1: LegacyHostIP;127.0.0.2: LegacyHostIP other;",
        ),
        ("{range .missing[*]}x{end}|", "|"),
        ("plain", "plain"),
        ("", ""),
    ],
)
def test_what_a_template_prints(template: str, text: str | None) -> None:
    printed = jsonpath.render(template, DATA)
    if text is None:
        assert printed.startswith('None {"addresses":')
    else:
        assert printed == text


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{.a", "a brace or quote is not closed"),
        ("{'a}", "a brace or quote is not closed"),
        ("{range .items[*]}{.kind}", "{range} without an {end}"),
        ("{.kind}{end}", "{end} without a {range}"),
        ("{.users[?(@.name=~'e.*')]}", "=~ (regular expressions) is not supported"),
        ("{.users[?(@.a==1 && @.b==2)]}", "&& (and) is not supported"),
        ("{.users[?(@.a==1 || @.b==2)]}", "|| (or) is not supported"),
        ("{.users[?(@.a=1)]}", "= is not supported; allowed: == != < <= > >="),
        ("{.users[(@.length-1)]}", "scripts in parentheses are not supported"),
        ("{.users.length()}", "functions are not supported"),
        ("{length(.users)}", "functions are not supported"),
        ("{banana}", "not understood from 'banana' on"),
        ("{.numbers[x]}", "[x] is no index, slice or quoted name"),
        ("{.numbers[]}", "[] is no index, slice or quoted name"),
        ("{.numbers[0:2:0]}", "must be 1 or more"),
        ("{.kind | upper}", "not understood from '|' on"),
    ],
)
def test_what_is_not_understood_is_refused_before_anything_is_printed(
    template: str, told: str
) -> None:
    with pytest.raises(jsonpath.JSONPathError) as refused:
        jsonpath.check(template)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{.numbers[5]}", "index 5 is out of bounds: the list has 5 items"),
        ("{.kind[0]}", "List is no list and cannot be indexed"),
        ("{.kind[?(@.a)]}", "List is no list and cannot be filtered"),
        ("{.users[?(@.name==1)]}", "myself == 1: values of different kinds cannot be compared"),
        ("{.items[?(@.status.addresses[*].type=='other')]}", "one value with one value"),
    ],
)
def test_what_does_not_fit_the_data(template: str, told: str) -> None:
    with pytest.raises(jsonpath.JSONPathError) as refused:
        jsonpath.render(template, DATA)
    assert told in str(refused.value)
