"""The counter of prose finds sentences and leaves out what is none."""

from tests import prose

PAGE = """# A heading of many words that is no sentence

The daemon writes the route. It waits
for `felix. Not` then.

| a | table. Here |
|---|---|

- One item (see [its page](x.md)). Another sentence, e.g. This.
- Second item

      indented code. More.

```
code. More code.
```
[a b](a.md) · [c d](b.md) · [e f](c.md) · [g h](d.md)
"""


def texts(page: str) -> list[str]:
    return [one.text for one in prose.sentences("p.md", page)]


def test_sentences_are_those_of_paragraphs_and_items() -> None:
    assert texts(PAGE) == [
        "The daemon writes the route.",
        "It waits for `felix. Not` then.",
        "One item (see [its page](x.md)).",
        "Another sentence, e.g. This.",
        "Second item",
    ]


def test_a_sentence_knows_its_line() -> None:
    assert [one.place for one in prose.sentences("p.md", PAGE)] == [
        "p.md:3", "p.md:3", "p.md:9", "p.md:9", "p.md:10",
    ]  # fmt: skip


def test_a_code_span_is_one_word_and_a_link_the_words_of_its_text() -> None:
    one = prose.Sentence("p.md", 1, "Run `a b c` and [read this](far/away.md) - now.")
    assert one.words == 6


def test_what_is_too_long_is_named_the_longest_first() -> None:
    page = f"{'word ' * 31}end.\n\n{'word ' * 40}end.\n\nA short one.\n"
    measure = prose.measured(prose.sentences("p.md", page))
    assert [one.words for one in measure.long] == [41, 32]
    assert measure.sentences == 3


def test_pronouns_without_a_referent_are_counted_as_whole_words() -> None:
    assert prose.pronouns("Nobody knows whatever; nobodyish does not count.") == 2


def test_what_is_missing_names_a_promise_or_the_roadmap() -> None:
    page = (
        "It is not yet so.\n\nIt is not yet so (M-124).\n\nNot in this release: [x](roadmap.md).\n"
    )
    found = prose.unreferenced(prose.sentences("p.md", page))
    assert [one.text for one in found] == ["It is not yet so."]


def test_remarks_are_docstrings_and_comments() -> None:
    text = prose.remarks('"""Module."""\n\nx = "nobody"  # Comment.\n')
    assert text.split("\n") == ["Module.", "Comment."]


def test_lint_names_each_fault_of_a_page() -> None:
    long = f"{'word ' * 31}end.\n\n"
    page = f"{long}It is not yet so.\n\n{'nobody. ' * 20}\n"
    assert [one.partition(":")[0] for one in prose.complaints({"p.md": page})] == [
        "p.md",
        "p.md",
        "nobody, somebody, anybody, whoever, whatever",
    ]


def test_lint_refuses_a_mean_above_the_limit() -> None:
    assert prose.complaints({"p.md": f"{'word ' * 16}end.\n"}) == [
        "a sentence has 17.0 words in the mean, at most 16"
    ]


def test_lint_finds_nothing_in_a_plain_page() -> None:
    assert prose.complaints({"p.md": "The daemon writes the route.\n"}) == []
