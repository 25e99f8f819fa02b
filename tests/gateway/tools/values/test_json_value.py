"""A value read character by character is what Python's own reader takes for one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.tools.values.json_value import MAX_DEPTH, JsonStep, JsonValue

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
PIECES = st.sampled_from([*'[]{},:"\\ \nue1-+.0E', "true", "null", '"a"', "12", "\\u00e9", "\x01", "é"])


def read(text: str) -> tuple[JsonStep, int]:
    """The step that ends it, and how many characters were taken."""
    value = JsonValue()
    for place, character in enumerate(text):
        step = value.feed(character)
        if step is not JsonStep.TAKEN:
            return step, place + (step is JsonStep.LAST)
    return JsonStep.TAKEN, len(text)


def is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=lambda name: json.loads("wrong"))
    except ValueError:
        return False
    return True


@given(JSON, st.sampled_from([None, 1]), st.booleans())
def test_every_value_is_taken_to_its_end(value: object, indent: int | None, is_ascii: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=is_ascii)
    step, num_taken = read(text + "\n")
    assert (step, num_taken) == (JsonStep.LAST if text[-1] in '"]}' else JsonStep.BEHIND, len(text))


@given(st.lists(PIECES, max_size=10).map("".join))
@settings(max_examples=500)
def test_what_ends_is_a_value_and_what_is_one_ends(text: str) -> None:
    step, num_taken = read(text + "\n")
    if step in (JsonStep.LAST, JsonStep.BEHIND):
        assert is_json(text[:num_taken])
    else:
        assert not is_json(text)


@given(st.lists(PIECES, max_size=10).map("".join))
def test_the_quick_way_is_the_slow_one(text: str) -> None:
    slow, quick = JsonValue(), JsonValue()
    place = 0
    while place < len(text):
        run = quick.run(text, place)
        steps = [slow.feed(character) for character in run or text[place]]
        step = JsonStep.TAKEN if run else quick.feed(text[place])
        assert steps == [step] * len(steps)
        if step is not JsonStep.TAKEN:
            return
        place += len(steps)


@pytest.mark.parametrize("text", ["01", "1.", "-", "+1", "1e", ".5", "NaN", "tru", "truex", "1x", "1" * 513])
def test_words_that_are_none(text: str) -> None:
    assert read(text + " ")[0] is JsonStep.WRONG


def test_depth_is_bounded() -> None:
    assert read("[" * MAX_DEPTH + "]" * MAX_DEPTH)[0] is JsonStep.LAST
    assert read("[" * (MAX_DEPTH + 1)) == (JsonStep.WRONG, MAX_DEPTH)
