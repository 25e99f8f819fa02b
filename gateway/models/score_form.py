"""How a query and a document are put to a model that scores, and how a document is cut that is too long.

Only the form's author writes control tokens: those in a client's texts stay plain text
(`gateway.models.tokenizer.tokenizer`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

from gateway.models.chat_template import ChatTemplate, ChatTemplateError
from gateway.models.model_parts import ModelParts
from gateway.models.tokenizer.tokenizer import PromptTokenizer
from shared.config.engines.engine import ModelSpec
from shared.config.engines.scoring import DOCUMENT, INSTRUCTION, QUERY, prompt_problem
from shared.files.model_file import ModelFileError

QWEN3 = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
"""What Qwen3-Reranker was trained on, as its model card has it."""
QWEN3_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
"""That of the model card, where no other is given."""
PAIR = "{query}\n{document}"
"""For classifiers whose files say nothing."""
_ROUNDS = 4
"""In which a cut is mended at a seam, where tokens are others than in the whole text."""
_PLACES = re.compile("|".join(map(re.escape, (QUERY, DOCUMENT, INSTRUCTION))))
_ROLES = re.compile(r"""["']query["'].*["']document["']|["']document["'].*["']query["']""", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Cut:
    """How much of a document is read at most, in tokens; None for all of it."""

    document_tokens: int | None = None
    prompt_tokens: int | None = None
    """Of the whole prompt: the document gets what the rest of it leaves."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a document is judged by."""

    query: str
    instruction: str


@dataclass(frozen=True, slots=True)
class ScoreForm:
    """A model's form."""

    prompt: str
    instruction: str
    """What stands for ``{instruction}`` where a request does not say."""
    is_whole: bool
    """The prompt is a whole text, behind which the model may want EOS; else it is to be continued by the answer."""

    @property
    def takes_instruction(self) -> bool:
        """Whether it has a place for one."""
        return INSTRUCTION in self.prompt

    def tokens(self, tokenizer: PromptTokenizer, asked: Question, document: str, cut: Cut) -> list[int]:
        """The filled form, cut in the document alone: what is before and behind it stays whole.

        Longer than ``cut.prompt_tokens`` only where it is so without any document.
        """
        if cut.document_tokens is not None:
            document = beginning(tokenizer, document, cut.document_tokens)
        most = cut.prompt_tokens
        if most is None:
            return self._filled(tokenizer, asked, document)
        room = most - len(self._filled(tokenizer, asked, ""))
        document = document[: most * tokenizer.max_token_characters]  # more cannot fit
        for taken in range(_ROUNDS):
            tokens = self._filled(tokenizer, asked, document)
            if len(tokens) <= most or not document:
                return tokens
            # beside other text, the same text may have a few tokens more than alone
            document = beginning(tokenizer, document, max(room - taken, 0))
        return self._filled(tokenizer, asked, beginning(tokenizer, document, max(room // 2, 0)))

    def _filled(self, tokenizer: PromptTokenizer, asked: Question, document: str) -> list[int]:
        given = {QUERY: asked.query, DOCUMENT: document, INSTRUCTION: asked.instruction}
        rendered = _PLACES.sub(lambda place: tokenizer.user_text(given[place[0]]), self.prompt)
        ends_in_text = self.prompt.endswith((QUERY, DOCUMENT, INSTRUCTION))
        return tokenizer.encode_filled(rendered, is_whole=self.is_whole, ends_in_text=ends_in_text)


def beginning(tokenizer: PromptTokenizer, text: str, num_tokens: int) -> str:
    """The text, or as much of its beginning as has so many tokens, or a few less: more of them
    where the tokenizer writes other characters than it reads."""
    text = text[: (num_tokens + 1) * tokenizer.max_token_characters]  # more has more tokens
    for taken in range(_ROUNDS):
        tokens = _alone(tokenizer, text)
        if len(tokens) <= num_tokens:
            return text
        kept = b"".join(map(tokenizer.bytes_of, tokens[: max(num_tokens - taken, 0)])).decode(errors="ignore")
        text = text[: min(len(kept), len(text) - 1)]
    # the tokenizer writes other characters than it reads, so its tokens do not tell where to cut
    lengths = range(1, len(text) + 1)
    return text[: bisect_right(lengths, num_tokens, key=lambda length: len(_alone(tokenizer, text[:length])))]


def _alone(tokenizer: PromptTokenizer, text: str) -> list[int]:
    return tokenizer.encode_chat(tokenizer.user_text(text))


def score_form(spec: ModelSpec, parts: ModelParts, path: Path) -> ScoreForm:
    """Of a model that scores; `ModelFileError` where neither configuration nor files say how it is asked."""
    prompt = spec.score.prompt or _files_prompt(parts, path)
    if spec.score.instruction is not None and INSTRUCTION not in prompt:
        raise ModelFileError(
            f"model {spec.name!r}: score.instruction is set, but its prompt has no {INSTRUCTION}; leave it out, or set "
            "score.prompt"
        )
    return ScoreForm(prompt, spec.score.instruction or QWEN3_INSTRUCTION, parts.is_classifier)


def _files_prompt(parts: ModelParts, path: Path) -> str:
    prompt = parts.score_prompt
    try:
        if prompt is None and parts.template is not None and _ROLES.search(parts.template.source):
            prompt = _of_template(parts.template)
        problem = "" if prompt is None else prompt_problem(prompt)
    except ChatTemplateError as error:
        problem = str(error)
    if problem:
        raise ModelFileError(f"{path}: its template for scores cannot be used ({problem}); set models[].score.prompt")
    if prompt is not None:
        return prompt
    if parts.is_encoder:
        raise ModelFileError(
            f"{path}: the post_processor of its tokenizer.json does not say how two texts are put together; save the "
            "tokenizer anew with one that has a pair, or set models[].score.prompt"
        )
    if parts.family == "qwen3":
        return QWEN3
    if parts.is_classifier:
        return PAIR
    raise ModelFileError(
        f"{path}: its files do not say how a query and a document are put to it; set models[].score.prompt, as in "
        f"'Query: {QUERY}\\nDocument: {DOCUMENT}\\nRelevant:'"
    )


def _of_template(template: ChatTemplate) -> str:
    """A chat template that knows the roles query and document, as those of sentence-transformers' cross-encoders do."""
    return template.render([{"role": "query", "content": QUERY}, {"role": "document", "content": DOCUMENT}])
