"""`-o go-template`: what Go's own documentation says a template does, on our values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calicoctl.gotemplate import TemplateError, check, render
from libcalico.model import IPPool, IPPoolSpec, Metadata, Node, NodeSpec

POOL = IPPool(
    metadata=Metadata(name="p1", labels={"b": "2", "a": "1"}),
    spec=IPPoolSpec(cidr="10.65.0.0/16", natOutgoing=True, allowedUses=["Workload", "Tunnel"]),
)
NODE = Node(metadata=Metadata(name="n1"), spec=NodeSpec())


@pytest.mark.parametrize(
    ("template", "data", "text"),
    [
        ("plain }} text", None, "plain }} text"),
        ("{{.}}", [1, "a", True, None, 1.5], "[1 a true <nil> 1.5]"),
        ("{{/* a comment */}}x", None, "x"),
        ("a {{- /* trimmed */ -}} b", None, "ab"),
        ("a\n {{- 23 -}} \n b", None, "a23b"),
        ("{{23 -}} < {{- 45}}", None, "23<45"),
        ("{{-3}}", None, "-3"),
        ('{{"output"}}', None, "output"),
        ("{{`raw\\n`}}", None, "raw\\n"),
        ('{{printf "%q" "output"}}', None, '"output"'),
        ('{{"output" | printf "%q"}}', None, '"output"'),
        ('{{printf "%q" (print "out" "put")}}', None, '"output"'),
        ('{{"put" | printf "%s%s" "out" | printf "%q"}}', None, '"output"'),
        ('{{"output" | printf "%s" | printf "%q"}}', None, '"output"'),
        ('{{with "output"}}{{printf "%q" .}}{{end}}', None, '"output"'),
        ('{{with $x := "output" | printf "%q"}}{{$x}}{{end}}', None, '"output"'),
        ("{{with .x}}{{.}}{{else}}none{{end}}", {"x": ""}, "none"),
        ("{{if .a}}A{{else if .b}}B{{else}}C{{end}}", {"a": 0, "b": 1}, "B"),
        ("{{if .a}}A{{else if .b}}B{{else}}C{{end}}", {"a": 0, "b": []}, "C"),
        ("{{range .}}<{{.}}>{{else}}none{{end}}", [1, 2], "<1><2>"),
        ("{{range .}}<{{.}}>{{else}}none{{end}}", [], "none"),
        ("{{range $i, $e := .}}{{if $i}}, {{end}}{{$e}}{{end}}", ["a", "b"], "a, b"),
        ("{{range $key, $value := .}}{{$key}}={{$value}};{{end}}", {"b": 2, "a": 1}, "a=1;b=2;"),
        ("{{range .}}{{if eq . 2}}{{continue}}{{end}}{{.}}{{end}}", [1, 2, 3], "13"),
        ("{{range .}}{{if eq . 2}}{{break}}{{end}}{{.}}{{end}}", [1, 2, 3], "1"),
        ("{{range 3}}{{.}}{{end}}", None, "012"),
        ("{{range .}}{{$.x}}{{end}}", {"x": 1}, "1"),
        ("{{$x := 1}}{{range .}}{{$x = .}}{{end}}{{$x}}", [5, 7], "7"),
        ("{{$x := 1}}{{range .}}{{$x := .}}{{end}}{{$x}}", [5, 7], "1"),
        ("{{len .}} {{index . 1}} {{slice . 1}}", ["a", "b", "c"], "3 b [b c]"),
        ('{{index . "a"}}{{index . "none"}}|{{.none}}', {"a": 1}, "1|<no value>"),
        ("{{and 1 0}} {{or 0 2}} {{not 1}}", None, "0 2 false"),
        ("{{eq 1 2 1}} {{ne 1 2}} {{lt 1 2}} {{ge 1 2}}", None, "true true true false"),
        ('{{if and (eq .a "x") (ne .b "y")}}yes{{end}}', {"a": "x", "b": "z"}, "yes"),
        ("{{or .a.b .c}}", {"a": {"b": ""}, "c": 4}, "4"),
        ("{{print 1 2}} {{print 1 `a` 2}} {{println 1}}", None, "1 2 1a2 1\n"),
        ('{{printf "%-5s|%5d|%05d|%.2f|%x|%t|%%" "ab" 7 42 1.5 255 true}}', None,
         "ab   |    7|00042|1.50|ff|true|%"),
        ('{{printf "%d"}}', None, "%!d(MISSING)"),
        ('{{join . ","}} {{joinAndTruncate . "," 6}}', ["abc", "def"], "abc,def abc..."),
        ("{{.Name}} {{.ObjectMeta.Name}} {{.Spec.CIDR}} {{.Spec.NATOutgoing}}", POOL,
         "p1 p1 10.65.0.0/16 true"),
        ("{{.metadata.name}} {{.spec.allowedUses}} {{.Labels}}", POOL,
         "p1 [Workload Tunnel] map[a:1 b:2]"),
        ("{{if .Spec.BGP}}{{.Spec.BGP.IPv4Address}}{{else}}-{{end}} {{.Spec.BGP}}", NODE,
         "- <nil>"),
    ],
)  # fmt: skip
def test_what_a_template_prints(template: str, data: Any, text: str) -> None:
    assert render(template, data) == text


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{", "cannot read"),
        ("{{}}", "holds nothing"),
        ("{{if .}}x", "{{if}} is not closed"),
        ("{{end}}", "{{end}} without"),
        ("{{break}}", "outside of range"),
        ("{{/* x }}", "comment is not closed"),
        ('{{define "x"}}{{end}}', "the action 'define' is not served"),
        ('{{template "x"}}', "the action 'template' is not served"),
        ('{{block "x" .}}{{end}}', "the action 'block' is not served"),
        ("{{html .}}", "the function 'html' is not served"),
        ("{{call .}}", "the function 'call' is not served"),
        ("{{banana .}}", "function 'banana' not defined; the functions are and, config"),
        ("{{.a .b}}", "only a function takes arguments"),
        ("{{(.a}}", "a parenthesis is not closed"),
        ("{{'a'}}", "character constants"),
        ("{{$a, $b := .}}", "for range only"),
    ],
)
def test_what_is_refused_before_anything_is_printed(template: str, told: str) -> None:
    with pytest.raises(TemplateError) as caught:
        check(template)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{.Spec.Banana}}", "can't evaluate field Banana in IPPoolSpec; its fields: cidr"),
        ("{{.Spec.CIDR.X}}", "can't evaluate field X in str"),
        ("{{index .Spec.AllowedUses 5}}", "index out of range: 5"),
        ("{{$x}}", "undefined variable $x"),
        ('{{eq .Name 1}}', "incompatible types"),
        ("{{len 1}}", "has no length"),
        ('{{config "asnumber"}}', "'config' is not available"),
        ("{{range .Name}}{{end}}", "range can't iterate"),
        ('{{printf "%c" 1}}', "the verb %c is not served"),
        ("{{join}}", "join: wrong arguments"),
    ],
)  # fmt: skip
def test_data_that_do_not_fit_are_an_error(template: str, told: str) -> None:
    with pytest.raises(TemplateError) as caught:
        render(template, POOL)
    assert told in str(caught.value)


def test_a_pointer_that_is_not_set_stops_the_template() -> None:
    with pytest.raises(TemplateError, match=r"nil pointer evaluating \.ASNumber"):
        render("{{.Spec.BGP.ASNumber}}", NODE)


@given(st.text(alphabet="{}.$ab |():=\"'-/*ifrangewithlsd0\n", max_size=40))
def test_any_text_is_a_template_or_a_refusal(text: str) -> None:
    try:
        assert isinstance(render(text, {"a": 1, "b": [1]}), str)
    except TemplateError:
        pass
