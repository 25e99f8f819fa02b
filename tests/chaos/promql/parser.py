"""Text of an expression → its tree."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?![a-z])|(?P<name>[A-Za-z_:][\w:]*)|(?P<text>"(?:[^"\\]|\\.)*")"""
    r"""|(?P<range>\[[^\]]*\])|(?P<sign>=~|!~|==|!=|<=|>=|[-+*/<>=(){},]))""",
    re.VERBOSE,
)
_DURATION = re.compile(r"(\d+)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
AGGREGATIONS = ("sum", "max", "min", "count")
FUNCTIONS = ("rate", "increase", "absent", "delta", "max_over_time", "clamp_min", "changes", "histogram_quantile")
COMPARISONS = ("==", "!=", "<=", ">=", "<", ">")


class PromqlError(ValueError):
    """An expression that this evaluator does not know; it has to learn it, or the alert goes unchecked."""


@dataclass(frozen=True)
class Number:
    """A scalar."""

    value: float


@dataclass(frozen=True)
class Selector:
    """Series of a metric, now or over the last ``range_s``."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...] = ()
    range_s: float | None = None


@dataclass(frozen=True)
class Call:
    """A function."""

    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True)
class Aggregate:
    """Many series as few; ``by`` names the labels that stay."""

    function: str
    by: tuple[str, ...]
    of: Node


@dataclass(frozen=True)
class Binary:
    """Two sides; ``on`` names the labels that must agree, None all of them."""

    operator: str
    left: Node
    right: Node
    on: tuple[str, ...] | None = None


Node = Number | Selector | Call | Aggregate | Binary


def parse(text: str) -> Node:
    """The tree of an expression; `PromqlError` for what it may not be."""
    parser = _Parser(text)
    node = parser.either()
    parser.end()
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = re.sub(r"#.*", "", text)
        self._tokens: list[str] = []
        at = 0
        while self._text[at:].strip():
            match = _TOKEN.match(self._text, at)
            if match is None:
                self._fail(f"what is {self._text[at : at + 20]!r}?")
            self._tokens.append(match.group().strip())
            at = match.end()
        self._at = 0

    def _fail(self, why: str) -> NoReturn:
        raise PromqlError(f"{why} in {self._text!r}")

    @property
    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._next
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if self._take() != token:
            self._fail(f"expected {token!r}")

    def end(self) -> None:
        if self._next:
            self._fail(f"{self._next!r} is too much")

    def either(self) -> Node:
        left = self._both()
        while self._next == "or":
            self._take()
            left = Binary("or", left, self._both())
        return left

    def _both(self) -> Node:
        left = self._compared()
        while self._next in ("and", "unless"):
            operator = self._take()
            left = Binary(operator, left, *self._right(self._compared))
        return left

    def _right(self, side: object) -> tuple[Node, tuple[str, ...] | None]:
        on = None
        if self._next in ("on", "ignoring"):
            if self._take() == "ignoring":
                self._fail("ignoring is not known")
            on = self._labels()
            if self._next in ("group_left", "group_right"):
                self._take()
                if self._next == "(":
                    self._labels()
        assert callable(side)
        return side(), on

    def _compared(self) -> Node:
        left = self._sum()
        while self._next in COMPARISONS:
            operator = self._take()
            left = Binary(operator, left, *self._right(self._sum))
        return left

    def _sum(self) -> Node:
        left = self._product()
        while self._next in ("+", "-"):
            operator = self._take()
            left = Binary(operator, left, *self._right(self._product))
        return left

    def _product(self) -> Node:
        left = self._atom()
        while self._next in ("*", "/"):
            operator = self._take()
            left = Binary(operator, left, *self._right(self._atom))
        return left

    def _atom(self) -> Node:
        token = self._take()
        if token == "(":
            node = self.either()
            self._expect(")")
            return node
        if token[:1].isdigit():
            return Number(float(token))
        if token in AGGREGATIONS:
            by = self._by()
            self._expect("(")
            of = self.either()
            self._expect(")")
            return Aggregate(token, by or self._by(), of)
        if token in FUNCTIONS:
            return self._call(token)
        if not re.fullmatch(r"[A-Za-z_:][\w:]*", token) or self._next == "(":
            self._fail(f"{token!r} is not known")
        return self._selector(token)

    def _call(self, function: str) -> Node:
        self._expect("(")
        found = [self.either()]
        while self._next == ",":
            self._take()
            found.append(self.either())
        self._expect(")")
        return Call(function, tuple(found))

    def _by(self) -> tuple[str, ...]:
        if self._next != "by":
            return ()
        self._take()
        return self._labels()

    def _labels(self) -> tuple[str, ...]:
        self._expect("(")
        found = []
        while self._next != ")":
            found.append(self._take())
            if self._next == ",":
                self._take()
        self._take()
        return tuple(found)

    def _selector(self, metric: str) -> Selector:
        matchers = []
        if self._next == "{":
            self._take()
            while self._next != "}":
                label, operator, value = self._take(), self._take(), self._take()
                matchers.append((label, operator, value.strip('"').replace("\\\\", "\\")))
                if self._next == ",":
                    self._take()
            self._take()
        range_s = seconds(self._take()) if self._next.startswith("[") else None
        return Selector(metric, tuple(matchers), range_s)


def seconds(text: str) -> float:
    """Of a range or a duration as Prometheus writes them."""
    parts = _DURATION.findall(text)
    if not parts:
        raise PromqlError(f"{text!r} is no duration")
    return float(sum(int(number) * _SECONDS[unit] for number, unit in parts))
