"""``POST /v1/completions``."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, Struct, UnsetType

from gateway.answers.event import DONE, SseEvent
from gateway.answers.settled import Settled
from gateway.answers.spliced import MARK, SplicedText
from gateway.endpoints.call import job_parts
from gateway.endpoints.call.constraint_check import checked_constraint
from gateway.endpoints.call.self_contained import SelfContained
from gateway.endpoints.texts.text_only import TextOnly
from gateway.endpoints.texts.text_prompts import text_prompts
from gateway.generation.logprobs import LogprobWriter
from gateway.models.models import ServedModel
from gateway.openai.answers.answers import Completion, CompletionChoice, Usage
from gateway.openai.answers.delta import Delta
from gateway.openai.errors.errors import ApiError
from gateway.openai.requests.schema import DEFAULT_COMPLETION_TOKENS, CompletionRequest
from gateway.reasoning.marks import ThoughtReading
from gateway.tenants.turn_threads import TenantThreads
from shared.config.engines.engine import ModelTask
from shared.messages.requests.payload import Constraint


class CompletionEndpoint(SelfContained, TextOnly):
    """Texts or token ids in, what follows them out."""

    operation = "text_completion"
    prompt_param = "prompt"
    body_model = CompletionRequest
    task: ModelTask = "generate"

    def asked(self, body: CompletionRequest) -> CompletionRequest:
        """The body itself."""
        return body

    async def constraint(
        self,
        body: CompletionRequest,
        model: ServedModel,  # noqa: ARG002
        threads: TenantThreads,
    ) -> Constraint | None:
        """As the request says."""
        return await checked_constraint(body, threads)

    async def prompts(self, body: CompletionRequest, model: ServedModel, threads: TenantThreads) -> list[list[int]]:
        """The prompts' tokens; ids are taken as they are, if the model has them."""
        return await text_prompts(body.prompt, model, "prompt", body.max_tokens or 1, model.tokenizer.encode, threads)

    def token_bytes(self, body: CompletionRequest, model: ServedModel) -> Sequence[bytes]:  # noqa: ARG002
        """Control tokens have no text."""
        return model.tokenizer.token_bytes

    def thoughts(self, body: CompletionRequest, model: ServedModel) -> ThoughtReading | None:  # noqa: ARG002
        """An answer is text and nothing else."""
        return None

    def room(self, body: CompletionRequest) -> job_parts.Room:
        """As OpenAI: without a limit, 16 tokens."""
        return job_parts.Room(body.max_tokens, DEFAULT_COMPLETION_TOKENS, "max_tokens")

    def renderer(
        self, body: CompletionRequest, model: ServedModel, request_id: str, created: int
    ) -> CompletionRenderer:
        """Completion chunks, or one completion."""
        logprobs = None if body.logprobs is None else LogprobWriter(model.tokenizer, has_top=body.logprobs > 0)
        echoes = [_echo(prompt, model) if body.echo else "" for prompt in body.prompt for _ in range(body.n)]
        return CompletionRenderer(
            f"cmpl-{request_id}",
            created,
            body.model,
            echoes,
            logprobs,
            include_usage=body.include_usage,
            is_counted=body.include_running_usage,
        )


def _echo(prompt: str | list[int], model: ServedModel) -> str:
    return prompt if isinstance(prompt, str) else model.tokenizer.decode(prompt)


class CompletionRenderer(Settled):
    """Writes one answer; all its chunks share id, time and model. ``echoes`` is what each choice's text begins with."""

    def __init__(
        self,
        completion_id: str,
        created: int,
        model: str,
        echoes: Sequence[str],
        logprobs: LogprobWriter | None,
        *,
        include_usage: bool,
        is_counted: bool = False,
    ) -> None:
        """``is_counted``: each chunk gets counts when it is sent (`running_usage`), so none is written ahead."""
        self._id = completion_id
        self._created = created
        self._model = model
        self._echoes = echoes
        self._logprobs = logprobs
        self._no_usage: UnsetType | None = None if include_usage else UNSET
        self._is_counted = is_counted
        self._texts: list[SplicedText] = []  # by choice, of an answer that is streamed

    def opening(self, usage: Usage) -> list[SseEvent]:  # noqa: ARG002
        """The prompt, where it is to be repeated; there are no roles."""
        marked = (CompletionChoice(index=choice, text=MARK) for choice in range(len(self._echoes)))
        self._texts = [SplicedText(self._completion([choice], self._no_usage)) for choice in marked]
        choices = [CompletionChoice(index=choice, text=echo) for choice, echo in enumerate(self._echoes) if echo]
        return [self._completion([choice], self._no_usage) for choice in choices]

    def events(self, delta: Delta) -> list[SseEvent]:
        """New text, the last one with the reason why it ended."""
        if delta.text and not delta.finish_reason and self._logprobs is None and not self._is_counted:
            return [self._texts[delta.choice].around(delta.text)]
        if not (delta.text or delta.scored or delta.finish_reason):
            return []
        return [self._completion([self._choice(delta, delta.text)], self._no_usage)]

    def closing(self, usage: Usage) -> list[SseEvent]:
        """A chunk without choices where counts are wanted."""
        return [DONE] if self._no_usage is UNSET else [self._completion([], usage), DONE]

    def failed(self, error: ApiError) -> list[SseEvent]:
        """An error in a chunk's place."""
        return [error.body()]

    def whole(self, choices: Sequence[Delta], usage: Usage) -> Struct:
        """The whole texts."""
        return self._completion([self._choice(one, self._echoes[one.choice] + one.text) for one in choices], usage)

    def _choice(self, delta: Delta, text: str) -> CompletionChoice:
        return CompletionChoice(
            index=delta.choice,
            text=text,
            logprobs=None if self._logprobs is None else self._logprobs.completion(delta.scored),
            finish_reason=delta.finish_reason,
        )

    def _completion(self, choices: list[CompletionChoice], usage: Usage | UnsetType | None) -> Completion:
        return Completion(id=self._id, created=self._created, model=self._model, choices=choices, usage=usage)
