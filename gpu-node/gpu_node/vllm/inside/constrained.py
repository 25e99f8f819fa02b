"""Structured output in vLLM's own process: our grammars in the place of its backends, and ends that they say.

vLLM asks what a request may go on with before each of its draws, and waits for it beside its steps while it is made.
It has no tokenizer here, and so nothing of its own to answer with. Its grammars would also begin anew where an attempt
goes on, since the output so far is prompt to it; ours are told of that output.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpu_node.grammars.compiler import GrammarCompiler
from gpu_node.grammars.matcher import LlMatcher
from gpu_node.vllm.words.border import CoreConstraint
from gpu_node.vllm.words.vllm_names import (
    RequestStatus,
    StructuredOutputBackend,
    StructuredOutputGrammar,
    StructuredOutputsParams,
)
from shared.messages.requests.payload import Constraint

WHOLE = "treadle: whole"
"""vLLM's reason why an output has ended: by its language nothing may follow. Any other text is an error."""

_WORD_TOKENS = 32  # of vLLM's masks


def asked_output(constrained: CoreConstraint) -> StructuredOutputsParams:
    """As it travels through vLLM: in its parameter for grammars, which only our backend reads."""
    constraint = constrained.constraint
    given = {
        "kind": constraint.kind,
        "text": constraint.text,
        "lead": constraint.lead,
        "output": list(constrained.output_token_ids),
    }
    return StructuredOutputsParams(grammar=json.dumps(given))


def told_end(stop_reason: int | str | None) -> tuple[bool, str]:
    """Whether the output is whole in its language, and the error that ended it; token ids say neither."""
    if not isinstance(stop_reason, str):
        return False, ""
    return (True, "") if stop_reason == WHOLE else (False, stop_reason)


class ConstrainedOutput(StructuredOutputGrammar):  # type: ignore[misc]
    """Where one output stands. The scheduler takes its tokens, so vLLM's own taking does nothing."""

    def __init__(self, matcher: LlMatcher | None, problem: str = "") -> None:
        """Without a ``matcher``, a ``problem`` ends the output at its first token."""
        self._matcher = matcher
        self._problem = problem

    @property
    def error(self) -> str:
        """Why it is unknown what may follow, or ``""``."""
        return self._problem if self._matcher is None else self._matcher.error

    @property
    def is_whole(self) -> bool:
        """Nothing may follow."""
        return self._matcher is not None and self._matcher.is_over

    def take(self, token_id: int) -> None:
        """The output goes on with this token."""
        assert self._matcher is not None
        self._matcher.take(token_id)

    def fill_bitmask(self, bitmask: torch.Tensor, batch_index: int) -> None:
        """Write what may follow; ``bitmask`` is int32 [rows, words]."""
        assert self._matcher is not None
        row = bitmask[batch_index].numpy().view(np.uint8)
        allowed = np.frombuffer(self._matcher.allowed, dtype=np.uint8)[: len(row)]
        row[: len(allowed)] = allowed
        row[len(allowed) :] = 0

    def is_terminated(self) -> bool:
        """Whether there is nothing to mask: it ends with the token that is drawn."""
        return self.is_whole or bool(self.error)

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """They have been taken."""
        del request_id, tokens
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """Of tokens that are only guessed, which Treadle does not let vLLM do (``--speculative-config``)."""
        raise NotImplementedError

    def rollback(self, num_tokens: int) -> None:
        """Likewise."""
        raise NotImplementedError

    def reset(self) -> None:
        """Likewise."""
        raise NotImplementedError


class TokenGrammars(StructuredOutputBackend):  # type: ignore[misc]
    """Compiles for the tokens of vLLM's one model."""

    def __init__(self, vllm_config: Any) -> None:
        model = vllm_config.model_config
        super().__init__(vllm_config, None, model.get_vocab_size())
        self._grammars = GrammarCompiler(lambda _: Path(model.model))
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="outputs")
        """In which vLLM has outputs begin."""

    def compile_grammar(
        self, request_type: object, grammar_spec: str, stop_token_ids: set[int] | None = None
    ) -> ConstrainedOutput:
        """The output of a request that begins, or goes on. Waits for its grammar."""
        del request_type, stop_token_ids  # what ends an answer, the model's files say
        given = json.loads(grammar_spec)
        grammar = self._grammars.compile("", Constraint(given["kind"], given["text"], given["lead"]))
        if grammar.problem:
            return ConstrainedOutput(None, grammar.problem)
        matcher = grammar.matcher()
        for token_id in given["output"]:
            matcher.take(token_id)
        return ConstrainedOutput(matcher)

    def allocate_token_bitmask(self, max_num_seqs: int) -> torch.Tensor:
        """Int32 [rows, words]: a bit a token."""
        return torch.full((max_num_seqs, -(-self.vocab_size // _WORD_TOKENS)), -1, dtype=torch.int32)

    def destroy(self) -> None:
        """Compile no more."""
        self.thread.shutdown(wait=True, cancel_futures=True)
        self._grammars.close()


class Constraining:
    """Of either scheduler of vLLM; what it inherits comes behind it."""

    def __init__(self, vllm_config: Any, *args: Any, structured_output_manager: Any, **kwargs: Any) -> None:
        # made without a tokenizer, it has neither
        structured_output_manager.backend = backend = TokenGrammars(vllm_config)
        structured_output_manager.executor = backend.thread
        super().__init__(vllm_config, *args, structured_output_manager=structured_output_manager, **kwargs)  # type: ignore[call-arg]

    def _update_request_with_output(
        self, request: Any, new_token_ids: list[int], *args: Any, **kwargs: Any
    ) -> tuple[list[int], bool]:
        """An output ends where its language says so, and where it is unknown what may follow."""
        new_token_ids, stopped = super()._update_request_with_output(request, new_token_ids, *args, **kwargs)  # type: ignore[misc]
        asked = request.structured_output_request
        if asked is None or not new_token_ids:
            return new_token_ids, stopped
        return _taken(request, asked.grammar, new_token_ids, stopped)


def _taken(
    request: Any, output: ConstrainedOutput, new_token_ids: Sequence[int], stopped: bool
) -> tuple[list[int], bool]:
    """The tokens that belong to the output, and whether it has ended."""
    kept: list[int] = []
    for token_id in new_token_ids:
        if output.is_terminated():
            break
        output.take(token_id)
        kept.append(token_id)
    if output.error:
        request.status, request.stop_reason = RequestStatus.FINISHED_ERROR, output.error
    elif output.is_whole:
        request.status, request.stop_reason = RequestStatus.FINISHED_STOPPED, WHOLE
    return kept, stopped or output.is_terminated()
