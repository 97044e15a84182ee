"""Random selectors: every operator, every spelling the language allows, bounded in length."""

from __future__ import annotations

from random import Random

MAX_TEXT = 400


class SelectorMaker:
    """Selectors over some labels and their values."""

    def __init__(self, random: Random, labels: dict[str, tuple[str, ...]]) -> None:
        self.random = random
        self.labels = labels

    def text(self, most: int = 3) -> str:
        """A selector of at most `most` terms; sometimes `all()`."""
        if self.random.random() < 0.12:
            return "all()"
        found = self.term(self.random.randint(1, most))
        return found if len(found) <= MAX_TEXT else self.comparison()

    def blank(self, need: bool = False) -> str:
        """White space, as much as a writer may like."""
        return self.random.choice([" ", "  ", "\t"] if need else [" ", " ", " ", "", "  ", "\t"])

    def quoted(self, value: str) -> str:
        """A value in either quotes."""
        quote = self.random.choice("'\"")
        return f"{quote}{value}{quote}"

    def term(self, size: int) -> str:
        """An expression of `size` comparisons."""
        if size == 1:
            return self.negated(self.comparison())
        left = self.random.randint(1, size - 1)
        word = self.random.choice(["&&", "||"])
        parts = [self.term(left), self.term(size - left)]
        # Without parentheses the precedence of the language decides.
        parts = [self.grouped(part) if self.random.random() < 0.4 else part for part in parts]
        joined = f"{parts[0]}{self.blank()}{word}{self.blank()}{parts[1]}"
        if self.random.random() < 0.15:
            return self.negated(self.grouped(joined), 1.0)
        return joined

    def grouped(self, text: str) -> str:
        """In parentheses."""
        return f"({self.blank()}{text}{self.blank()})"

    def negated(self, text: str, share: float = 0.18) -> str:
        """Perhaps with one `!` or several."""
        if self.random.random() >= share:
            return text
        return self.random.choice(["!", "!", "! ", "!!", "! !!"]) + self.grouped(text)

    def comparison(self) -> str:
        """One comparison."""
        key = self.random.choice(list(self.labels))
        values = self.labels[key]
        value = self.random.choice([*values, "none-such"])
        kind = self.random.choices(
            ("==", "!=", "in", "not in", "contains", "starts with", "ends with", "has", "all()"),
            (18, 12, 12, 10, 9, 9, 9, 15, 2),
        )[0]
        if kind == "all()":
            return kind
        if kind == "has":
            return f"has({self.random.choice(['', ' '])}{key}{self.random.choice(['', ' '])})"
        if kind in ("==", "!="):
            return f"{key}{self.blank()}{kind}{self.blank()}{self.quoted(value)}"
        if kind in ("contains", "starts with", "ends with"):
            value = self.part(value, kind)
            words = [kind, kind.replace(" ", "")]
            operator = self.random.choice(words)
            return f"{key}{self.blank(True)}{operator}{self.blank()}{self.quoted(value)}"
        operator = self.random.choice(["not in", "not  in", "notin"]) if kind == "not in" else "in"
        chosen = self.random.sample([*values, "none-such"], self.random.randint(0, len(values)))
        listed = f",{self.blank()}".join(self.quoted(one) for one in chosen)
        if chosen and self.random.random() < 0.2:
            listed += ","
        return f"{key}{self.blank(True)}{operator}{self.blank()}{{{self.blank()}{listed}}}"

    def part(self, value: str, kind: str) -> str:
        """A piece of a value from its begin, end or middle."""
        if not value:
            return value
        cut = self.random.randint(1, len(value))
        if kind == "starts with":
            return value[:cut]
        if kind == "ends with":
            return value[-cut:]
        start = self.random.randrange(len(value))
        return value[start : start + cut]
