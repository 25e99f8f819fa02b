"""How models mark what they think before they answer: known by what their chat template has in it.

``think``: ``<think>``, thoughts, ``</think>``, the answer (DeepSeek-R1, Qwen3 and many others). Of some models the
template writes the first mark itself, so that their output begins with thoughts.
``gemma4``: ``<|channel>thought``, a line break, thoughts, ``<channel|>``.
``harmony`` (gpt-oss): an output is messages, each with a channel in its header; see `gateway.reasoning.harmony`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReasoningMarks:
    """What stands before thoughts, and behind them. The first character of a mark occurs nowhere else in it."""

    begin: str
    end: str
    controls: tuple[str, ...] = ()
    """Texts of which marks are made, where a mark is several control tokens, and further ones between messages."""
    between: str = ""
    """What stands between thoughts and what follows on them, beside white space."""
    answer: str = ""
    """The header of an answer; ``""`` where it has none."""

    @property
    def markers(self) -> tuple[str, ...]:
        """What may be a control token of the model, and has to be seen in its output all the same."""
        return (self.begin, self.end, *self.controls)


THINK = ReasoningMarks("<think>", "</think>")
HARMONY = ReasoningMarks(
    "<|channel|>analysis<|message|>",
    "<|end|>",
    controls=("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|call|>", "<|return|>"),
    between="<|start|>assistant",
    answer="<|channel|>final<|message|>",
)

GEMMA4 = ReasoningMarks("<|channel>thought\n", "<channel|>", controls=("<|channel>",))
_MARKS = {"think": THINK, "harmony": HARMONY, "gemma4": GEMMA4, "none": None}
_SIGNS = ((HARMONY.begin, HARMONY), (GEMMA4.end, GEMMA4), (THINK.end, THINK))
"""What a template has in it of each; the first counts."""


@dataclass(frozen=True, slots=True)
class ThoughtReading:
    """How thoughts are found in the answers to a request."""

    marks: ReasoningMarks
    is_open: bool
    """Answers begin among them: the prompt has the first mark."""


def marks_of(template: str, wanted: str = "auto") -> ReasoningMarks | None:
    """By name; ``auto``: by the model's template, ``""`` where there is none. None for a model that only answers."""
    if wanted == "auto":
        return next((marks for sign, marks in _SIGNS if sign in template), None)
    return _MARKS[wanted]


def is_left_open(prompt: str, marks: ReasoningMarks) -> bool:
    """Whether a rendered prompt ends among thoughts: an output goes on with them."""
    return prompt.rfind(marks.begin) > prompt.rfind(marks.end)
