"""The dense batch of NanoFlow (OSDI'25, §3.1, §4.2.1): every step has as many rows, of decodes and of prefill."""

from __future__ import annotations

from dataclasses import dataclass

from shared.config.hardware import ModelShape
from shared.pipelines.machine import GroupPeaks

GRANULE_ROWS = 128
"""What sizes of batches are multiples of: the shape of a tile of a product (§4.1.1)."""


@dataclass(frozen=True, slots=True)
class MeanLengths:
    """What requests are like on average."""

    prompt_tokens: float
    output_tokens: float

    @property
    def decode_share(self) -> float:
        """Of the rows of all steps, those that decode."""
        return self.output_tokens / (self.prompt_tokens + self.output_tokens)

    @property
    def mean_context_tokens(self) -> float:
        """Of a request while it decodes."""
        return self.prompt_tokens + self.output_tokens / 2


@dataclass(frozen=True, slots=True)
class DenseBatch:
    """Rows of a step: decodes come first, then parts of prompts."""

    num_rows: int
    lengths: MeanLengths

    @property
    def num_decodes(self) -> float:
        """Rows that decode, on average."""
        return self.num_rows * self.lengths.decode_share

    @property
    def num_prefill_rows(self) -> float:
        """The others."""
        return self.num_rows - self.num_decodes

    @property
    def decode_tokens(self) -> float:
        """Tokens that decodes attend to, all together."""
        return self.num_decodes * self.lengths.mean_context_tokens

    @property
    def prefill_pairs(self) -> float:
        """Pairs of a row of prefill and a token of its prompt: the paper counts whole squares."""
        return self.num_prefill_rows * self.lengths.prompt_tokens


def largest_batch(machine: GroupPeaks, model: ModelShape, lengths: MeanLengths) -> float:
    """Rows of a step in which keys and values of decodes fill what weights leave of the memory (§3.1).

    Infinite where nothing is decoded; negative where the weights do not fit.
    """
    if not lengths.output_tokens:
        return float("inf")
    tokens = (machine.memory_bytes - model.load_bytes) / model.kv_token_bytes
    return tokens / lengths.mean_context_tokens / lengths.decode_share
