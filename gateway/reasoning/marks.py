"""How models mark what they think before they answer: known by what their chat template has in it.

``think``: ``<think>``, thoughts, ``</think>``, the answer (DeepSeek-R1, Qwen3 and many others). Of some models the
template writes the first mark itself, so that their output begins with thoughts.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReasoningMarks:
    """What stands before thoughts, and behind them. The first character of a mark occurs nowhere else in it."""

    begin: str
    end: str

    @property
    def both(self) -> tuple[str, str]:
        """What may be a control token of the model, and has to be seen in its output all the same."""
        return self.begin, self.end


THINK = ReasoningMarks("<think>", "</think>")


@dataclass(frozen=True, slots=True)
class ThoughtReading:
    """How thoughts are found in the answers to a request."""

    marks: ReasoningMarks
    is_open: bool
    """Answers begin among them: the prompt has the first mark."""


def marks_of(template: str, wanted: str = "auto") -> ReasoningMarks | None:
    """By name; ``auto``: by the model's template, ``""`` where there is none. None for a model that only answers."""
    if wanted == "auto":
        return THINK if THINK.end in template else None
    return {"think": THINK, "none": None}[wanted]


def is_left_open(prompt: str, marks: ReasoningMarks) -> bool:
    """Whether a rendered prompt ends among thoughts: an output goes on with them."""
    return prompt.rfind(marks.begin) > prompt.rfind(marks.end)
