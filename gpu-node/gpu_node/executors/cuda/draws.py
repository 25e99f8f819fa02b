"""Tokens of a step on a CUDA device, drawn, kept for later steps, and on their way to the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from gpu_node.engine.border.plan import StepResult
from gpu_node.executors.cuda.memory.marks import Mark
from gpu_node.executors.draws.cells import NUM_CELLS
from gpu_node.executors.draws.not_finite import NOT_FINITE
from gpu_node.executors.memory.host_bytes import row_bytes
from gpu_node.kernels.token_draw import NOT_DRAWN, TokenDraw
from gpu_node.kernels.triton.draws.adjust import adjusted_logits
from gpu_node.kernels.triton.draws.draw import draw_tokens
from gpu_node.kernels.triton.draws.draw_arrays import draw_arrays
from gpu_node.kernels.triton.launch import upload
from shared.messages.requests.payload import Sampling
from shared.messages.requests.token_logprob import TokenLogprob


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Of the draws that ask for them, on the host once the step is done."""

    own: torch.Tensor
    """float64 [asked]: of the drawn tokens."""
    token_ids: torch.Tensor
    """int64 [asked, most]: the most likely first."""
    values: torch.Tensor
    """float64 [asked, most]."""


class Loses(Protocol):
    """A link that is told of what was lost."""

    def lose(self, generation: int) -> None:
        """What lay at the receiver in this generation."""
        ...


@dataclass(frozen=True, slots=True)
class RemotePart:
    """What a step counts on at a receiver."""

    is_lost: torch.Tensor
    """int32 [1], on the host once the step is done."""
    link: Loses
    generation: int

    @classmethod
    def of(cls, is_lost: torch.Tensor, link: Loses, generation: int) -> RemotePart:
        """As the device finds it when it has come here."""
        return cls(to_host(is_lost), link, generation)

    def take(self) -> bool:
        """Whether it is lost; the link hears of that."""
        is_lost = bool(self.is_lost)
        if is_lost:
            self.link.lose(self.generation)
        return is_lost


@dataclass(frozen=True, slots=True)
class QueuedStep:
    """A step in the device's queue."""

    sequence_ids: tuple[int, ...]
    """Of each draw: the sequence that gets the token."""
    nums_top: tuple[int | None, ...]
    """Of each draw: how many logprobs it wants beside the token's."""
    tokens: torch.Tensor
    """int32 [draws], on the host once the step is done."""
    logprobs: Logprobs | None
    embeddings: torch.Tensor | None
    """float32 [draws, columns], likewise, of a model that embeds or scores."""
    before: Mark
    """The end of the step before."""
    begin: Mark
    end: Mark
    remote: RemotePart | None = None

    def is_done(self) -> bool:
        """Whether `result` would return at once."""
        return self.end.is_passed()

    def result(self) -> StepResult:
        """Wait for the step; its tokens were drawn on the device."""
        self.end.wait()
        tokens = dict(zip(self.sequence_ids, self.tokens.tolist(), strict=True))
        return StepResult(
            token_ids={sequence_id: token for sequence_id, token in tokens.items() if token != NOT_DRAWN},
            duration_s=self.end.since_s(self.begin),
            idle_s=self.begin.since_s(self.before),
            errors={sequence_id: NOT_FINITE for sequence_id, token in tokens.items() if token == NOT_DRAWN},
            logprobs={
                sequence_id: logprob
                for sequence_id, logprob in self._token_logprobs().items()
                if tokens[sequence_id] != NOT_DRAWN
            },
            is_remote_lost=self.remote is not None and self.remote.take(),
            embeddings={} if self.embeddings is None else row_bytes(self.sequence_ids, self.embeddings),
        )

    def _token_logprobs(self) -> dict[int, TokenLogprob]:
        if self.logprobs is None:
            return {}
        asked = [(one, num) for one, num in zip(self.sequence_ids, self.nums_top, strict=True) if num is not None]
        columns = (self.logprobs.own, self.logprobs.token_ids, self.logprobs.values)
        found = zip(*(column.tolist() for column in columns), strict=True)
        return {
            sequence_id: TokenLogprob(own, list(zip(token_ids[:num_top], values[:num_top], strict=True)))
            for (sequence_id, num_top), (own, token_ids, values) in zip(asked, found, strict=True)
        }


class MaskedStep:
    """A step whose draws are queued when their masks are there; no other step is submitted before that."""

    def __init__(self, draw: Callable[[Mapping[int, bytes]], QueuedStep]) -> None:
        self._draw = draw
        self._queued: QueuedStep | None = None

    def give_masks(self, masks: Mapping[int, bytes]) -> None:
        """Queue the draws."""
        assert self._queued is None, "masks are given once"
        self._queued = self._draw(masks)

    def is_done(self) -> bool:
        """Whether `result` would return at once."""
        return self._queued is not None and self._queued.is_done()

    def result(self) -> StepResult:
        """As `QueuedStep.result`."""
        assert self._queued is not None, "its masks come first"
        return self._queued.result()


class TokenCells:
    """Where drawn tokens lie, so that steps submitted later can name them before they are drawn (`Cells`)."""

    def __init__(self, device: torch.device) -> None:
        self.cells = torch.zeros(NUM_CELLS, dtype=torch.int32, device=device)

    def draw(
        self, logits: torch.Tensor, draws: Sequence[TokenDraw], first_cell: int
    ) -> tuple[torch.Tensor, Logprobs | None]:
        """Draw from ``logits`` float32 [rows, vocabulary] into these cells and from ``first_cell`` on.

        Tokens int32 [draws] and logprobs are on their way to the host when this returns.
        """
        arrays = draw_arrays(draws, logits.shape[1], logits.device)
        tokens = torch.empty(len(draws), dtype=torch.int32, device=logits.device)
        cells = self.cells[first_cell : first_cell + len(draws)]
        draw_tokens(logits, adjusted_logits(logits, arrays.adjustments, self.cells), arrays, tokens, cells)
        return to_host(tokens), _logprobs(logits, draws, tokens)

    def warm_up(self, logits: torch.Tensor) -> None:
        """Draw unwanted tokens, before any step names a cell, so that no draw has to compile or load code."""
        sampling = Sampling(max_tokens=1, temperature=1.0, presence_penalty=1.0, logit_bias=[(0, 0.0)])
        self.draw(logits[:1], [TokenDraw(0, sampling, 0, 0, 1, [0], [0])], 0)


def _logprobs(logits: torch.Tensor, draws: Sequence[TokenDraw], tokens: torch.Tensor) -> Logprobs | None:
    """Of the model's own distribution: no bias, no penalty, temperature 1. Equals in the order of their ids."""
    asked = [number for number, draw in enumerate(draws) if draw.num_top is not None]
    if not asked:
        return None
    most = max(min(draw.num_top or 0, logits.shape[1]) for draw in draws)
    rows, numbers = upload([torch.tensor([draws[number].row for number in asked]), torch.tensor(asked)], logits.device)
    logprobs = logits.index_select(0, rows).double().log_softmax(dim=-1)
    own = logprobs.gather(1, tokens.index_select(0, numbers).clamp(0, logits.shape[1] - 1).long()[:, None])[:, 0]
    values, token_ids = logprobs.sort(dim=-1, descending=True, stable=True)
    return Logprobs(to_host(own), to_host(token_ids[:, :most]), to_host(values[:, :most]))


def to_host(values: torch.Tensor) -> torch.Tensor:
    """A copy in host memory, which is there once the device has come to it."""
    there = torch.empty(values.shape, dtype=values.dtype, pin_memory=values.device.type == "cuda")
    return there.copy_(values, non_blocking=True)
