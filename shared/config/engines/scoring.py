"""How a model that scores is asked whether a document is what a query wants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shared.config.bounds import STRICT

QUERY, DOCUMENT, INSTRUCTION = "{query}", "{document}", "{instruction}"
"""Places in a prompt; all else in it stands for itself."""


@dataclass(frozen=True, slots=True)
class ScoreOptions:
    """The prompt that a model was trained to judge, and its two answers."""

    __pydantic_config__: ClassVar = STRICT

    prompt: str | None = None
    """A text with ``{query}`` and ``{document}`` in it, and maybe ``{instruction}``; control tokens by their names.
    Left out, what the model's files say (of an encoder, how its tokenizer puts two texts together); else that of
    Qwen3-Reranker for its family; else, for a classifier, the query, a line break and the document."""
    instruction: str | None = None
    """What stands for ``{instruction}`` where a request does not say; left out, that of Qwen3-Reranker's authors."""
    labels: tuple[str, str] = ("no", "yes")
    """The tokens that mean no and yes, as texts, of a model that answers by one of them; the score is how likely the
    second is of the two. A classifier with one label of its own needs none."""

    def __post_init__(self) -> None:
        if self.prompt is not None:
            problem = prompt_problem(self.prompt)
            if problem:
                raise ValueError(f"prompt: {problem}")
        if "" in self.labels or self.labels[0] == self.labels[1]:
            raise ValueError(f"labels: {list(self.labels)} are not the texts of two different tokens")


def prompt_problem(prompt: str) -> str:
    """Why no document can be put to a model in this way; ``""`` where it can."""
    for place in (QUERY, DOCUMENT):
        if prompt.count(place) != 1:
            return f"{place} is in it {prompt.count(place)} times; it has to be there once"
    if prompt.count(INSTRUCTION) > 1:
        return f"{INSTRUCTION} is in it {prompt.count(INSTRUCTION)} times; it may be there once"
    return ""


DEFAULT_SCORE = ScoreOptions()
