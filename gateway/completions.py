"""``POST /v1/completions``."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from gateway import admission, errors
from gateway.models import ServedModel
from gateway.openai_responses import Completion, CompletionChoice, FinishReason, Usage
from gateway.openai_schema import DEFAULT_COMPLETION_TOKENS, CompletionRequest


class CompletionEndpoint:
    """A text or token ids in, what follows them out."""

    operation = "text_completion"
    prompt_param = "prompt"
    body_model = CompletionRequest

    async def prompt_token_ids(self, body: CompletionRequest, model: ServedModel) -> list[int]:
        """The prompt's tokens; ids are taken as they are, if the model has them."""
        prompt = body.prompt
        tokenizer = model.tokenizer
        if isinstance(prompt, str):
            if not prompt:
                raise errors.invalid("the prompt is empty", "prompt")
            return await admission.tokenise(lambda: tokenizer.encode(prompt), len(prompt))
        if not all(0 <= token_id < tokenizer.vocab_size for token_id in prompt):
            raise errors.invalid(f"token ids are numbers from 0 to {tokenizer.vocab_size - 1}", "prompt")
        return prompt

    def room(self, body: CompletionRequest) -> admission.Room:
        """As OpenAI: without a limit, 16 tokens."""
        return admission.Room(body.max_tokens, DEFAULT_COMPLETION_TOKENS, "max_tokens")

    def renderer(self, body: CompletionRequest, request_id: str, created: int) -> CompletionRenderer:
        """Completion chunks, or one completion."""
        return CompletionRenderer(f"cmpl-{request_id}", created, body.model, include_usage=body.include_usage)


class CompletionRenderer:
    """Writes one answer; all its chunks share id, time and model."""

    def __init__(self, completion_id: str, created: int, model: str, *, include_usage: bool) -> None:
        self._id = completion_id
        self._created = created
        self._model = model
        self._no_usage: UnsetType | None = None if include_usage else UNSET

    def opening(self) -> list[Struct]:
        """Nothing: there are no roles."""
        return []

    def piece(self, text: str) -> Struct:
        """Some text."""
        return self._completion([CompletionChoice(text=text)], self._no_usage)

    def closing(self, text: str, finish_reason: FinishReason) -> list[Struct]:
        """The last text with the reason."""
        return [self._completion([CompletionChoice(text=text, finish_reason=finish_reason)], self._no_usage)]

    def counts(self, usage: Usage) -> Struct:
        """A chunk without choices."""
        return self._completion([], usage)

    def whole(self, text: str, finish_reason: FinishReason, usage: Usage) -> Struct:
        """The whole text."""
        return self._completion([CompletionChoice(text=text, finish_reason=finish_reason)], usage)

    def _completion(self, choices: list[CompletionChoice], usage: Usage | UnsetType | None) -> Completion:
        return Completion(id=self._id, created=self._created, model=self._model, choices=choices, usage=usage)
