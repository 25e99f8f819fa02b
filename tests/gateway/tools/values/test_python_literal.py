"""Literals of Python, beside Python's own reading of them."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tools.values.python_literal import read_literal

PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8)
)
LITERALS = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), inner, max_size=3),
    ),
    max_leaves=8,
)
SOURCE = st.text("[](){},:'\"\\nxuN01.eE-+_ rT#\n", max_size=12)


def listed(value: Any) -> Any:
    """As JSON has it: a tuple is a list."""
    if isinstance(value, dict):
        return {key: listed(one) for key, one in value.items()}
    return [listed(one) for one in value] if isinstance(value, list | tuple) else value


@given(LITERALS)
def test_what_python_writes_is_read(value: Any) -> None:
    assert read_literal(repr(value)) == listed(value)


@given(SOURCE)
@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
def test_what_is_read_is_what_python_reads(source: str) -> None:
    try:
        found = read_literal(source)
    except ValueError:
        return
    assert found == listed(ast.literal_eval(f"({source}\n)"))


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("'it\\'s' \"two\"", "it's" + "two"),
        ("('first '\n 'second')", "first second"),
        ("'''it's 'so' '''", "it's 'so' "),
        ("r'\\d'", "\\d"),
        ("'\\d\\x41\\u00e9\\U0001f600\\101\\N{BULLET}'", "\\dAé😀A•"),
        ("[true, False, null]", [True, False, None]),
        ("(1)", 1),
        ("(1,)", [1]),
        ("()", []),
        ("{'a': {1: -2.5e3,},}", {"a": {1: -2500.0}}),
        ("0x1F", 31),
        ("1_000", 1000),
        ("[1, # one\n 2]", [1, 2]),
    ],
)
def test_literals(source: str, value: object) -> None:
    assert read_literal(source) == value


@pytest.mark.parametrize(
    "source",
    ["", "a", "[1", "1]", "[1)", "[,]", "{1, 2}", "{1: 2, 3}", "{[]: 1}", "{1:}", "[1 2]", "f()", "a[0]", "1 + 2",
     "1j", "b'a'", "'\\x4'", "'\\N{NO SUCH}'", "'\\U00110000'", "'\\Uffffffff'", "'a", "01", "--1", "...", "[1:2]"],
)  # fmt: skip
def test_no_literals(source: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_literal(source)
