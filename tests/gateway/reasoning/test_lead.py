"""Whatever stands before an answer that is held to a form is read as thoughts, and the form is the answer's alone."""

from __future__ import annotations

import pytest

from gateway.reasoning.lead import lead_of
from gateway.reasoning.marks import GEMMA4, HARMONY, THINK, ReasoningMarks, ThoughtReading
from gateway.reasoning.output_splitter import splitter_of
from shared.grammars.problem import build_problem_of
from shared.messages.requests.payload import Constraint
from tests.gateway.tool_models import MARK, output_ids
from tests.gateway.tools.byte_grammar import accepts

JSON = Constraint("json_schema", '{"type": "object"}')


def held(marks: ReasoningMarks, *, is_open: bool = False, thinks: bool = True, control: str = "") -> Constraint:
    lead = lead_of(marks, {control: MARK} if control else {}, is_open=is_open, thinks=thinks, has_header=True)
    made = Constraint(JSON.kind, JSON.text, lead)
    assert build_problem_of(made) == ""
    return made


FINAL = "<|channel|>final<|message|>"
ANALYSIS = "<|channel|>analysis<|message|>Hm, {}.<|end|><|start|>assistant"


@pytest.mark.parametrize(
    ("marks", "text", "is_allowed"),
    [
        (THINK, "<think>\nHm, {} </b>.\n</think>\n\n{}", True),
        (THINK, "<think></think>{}", True),
        (THINK, "{}", True),
        (THINK, "<think>Hm.{}", False),
        (THINK, "<think>a</think>b</think>{}", False),
        (THINK, "<think>a</think>b", False),
        (THINK, "Hm.</think>{}", False),
        (THINK, "Hm. {}", False),
        (GEMMA4, "<|channel>thought\nHm.<channel|>{}", True),
        (GEMMA4, "{}", True),
        (HARMONY, f"{ANALYSIS}{FINAL}{{}}", True),
        (HARMONY, f"{FINAL}{{}}", True),
        (HARMONY, "{}", False),
        (HARMONY, f"{ANALYSIS}{{}}", False),
    ],
)
def test_thoughts_are_allowed_before_the_form(marks: ReasoningMarks, text: str, is_allowed: bool) -> None:
    assert accepts(held(marks), output_ids(text)) is is_allowed
    if is_allowed:
        splitter = splitter_of(ThoughtReading(marks, is_open=False))
        splits = [*splitter.feed(text), *splitter.end()]
        assert "".join(one.answer for one in splits) == "{}"


def test_where_the_prompt_has_opened_thoughts_they_have_to_end() -> None:
    made = held(THINK, is_open=True)
    assert accepts(made, output_ids("Hm.</think>{}"))
    assert not accepts(made, output_ids("{}"))


def test_who_is_kept_from_thinking_answers_at_once() -> None:
    assert lead_of(THINK, {}, is_open=False, thinks=False, has_header=True) == ""
    made = held(HARMONY, thinks=False)
    assert accepts(made, output_ids(f"{FINAL}{{}}"))
    assert not accepts(made, output_ids(f"{ANALYSIS}{FINAL}{{}}"))


def test_a_call_has_a_header_of_its_own() -> None:
    lead = lead_of(HARMONY, {}, is_open=False, thinks=True, has_header=False)
    made = Constraint(JSON.kind, JSON.text, lead)
    assert accepts(made, output_ids(f"{ANALYSIS}{{}}"))
    assert not accepts(made, output_ids(f"{ANALYSIS}{FINAL}{{}}"))


@pytest.mark.parametrize("mark", ["<think>", "</think>"])
def test_a_mark_without_text_is_named_by_its_id(mark: str) -> None:
    made = held(THINK, control=mark)
    assert accepts(made, output_ids("<think>Hm.</think>\n{}", mark))
    assert not accepts(made, output_ids("<think>Hm.</think>\n{}"))
