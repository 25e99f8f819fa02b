"""Edges of texts that a control token could be made of."""

from __future__ import annotations

import pytest

from gateway.models.tokenizer.control_edges import ControlEdges

EDGES = ControlEdges(["<|im_end|>", "<filename>", "[INST]"])


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("", ""),
        ("plain", "plain"),
        ("a < b", "a < b"),
        ("a<|im_", "a"),
        ("nd|> b", " b"),
        ("> a [", " a "),
        ("|im_end|", ""),
        ("<", ""),
        ("|><|", ""),
        # words are what templates ask for
        ("name", "name"),
        ("end", "end"),
    ],
)
def test_the_rest_of_a_text(text: str, rest: str) -> None:
    begin, end = EDGES.inside(text)
    assert text[begin:end] == rest


def test_without_control_tokens_nothing_is_part_of_one() -> None:
    assert ControlEdges([]).inside("<|im_end|>") == (0, 10)
