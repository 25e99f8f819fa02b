"""The border between bookkeeping and execution: what a step shall compute, and what came out of it.

Plain integers both ways: the scheduler never sees a tensor, an executor never sees a queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shared.messages.requests.payload import Sampling
from shared.messages.requests.token_logprob import TokenLogprob

DRAWN = -1
"""As the last token of a part: what an earlier step drew last for this sequence, and bookkeeping has not seen yet."""
NO_ADAPTER = -1
"""Of a sequence that is the model's own."""
MAX_STEPS_AHEAD = 15
"""A step knows the tokens of this many steps before it. So more than these may not be without a result."""
MAX_STEP_DRAWS = 4096
"""Draws of one step."""


@dataclass(frozen=True, slots=True)
class Draw:
    """How to draw the next token of a sequence."""

    sequence_id: int
    """The sequence that gets the token; several draws of one row are the beginnings of several sequences."""
    sampling: Sampling
    position: int
    """Place of the drawn token in the output: the number of tokens that the output has before it."""
    choice: int = 0
    """Number of the sequence in its request. With seed and position, all that chance may depend on."""
    num_top: int | None = None
    """None asks for no logprobs; 0 for that of the drawn token, k for those of the k most likely beside it."""
    prompt_token_ids: Sequence[int] = ()
    """For penalties, empty where none is asked for. A view: read when the step is submitted, not kept."""
    output_token_ids: Sequence[int] = ()
    """The output as far as bookkeeping knows it, likewise, with or without the row's own token.

    What is missing of ``position`` tokens the executor adds at the end: the tokens that were drawn last for the row's
    sequence, the last of them the row's own. `DRAWN` does not occur here.
    """
    allowed: bytes = b""
    """Token i may be drawn if bit ``i % 8`` of byte ``i // 8`` is set; what lies behind the end may not. One is
    allowed at least. Empty: any token."""
    num_draft_tokens: int = 0
    """Of the part's draft tokens, those that lie before the drawn one: its row is that of the last of them."""
    is_mask_late: bool = False
    """What is allowed hangs on tokens that are not known yet, and comes when they are (`LateMasks`)."""


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """Copy-on-write: the content of ``source``, as it was before the step, goes to ``destination``."""

    source: int
    destination: int


@dataclass(frozen=True, slots=True)
class BlockSwap:
    """The content of a block that moves between device and host memory."""

    device_block: int
    host_block: int


@dataclass(frozen=True, slots=True)
class BlockMove:
    """The content of a block that goes to a receiver, or comes back from it."""

    device_block: int
    remote_block: int


@dataclass(frozen=True, slots=True)
class Restore:
    """A request that was evicted comes back to the device."""

    request_id: str
    places: tuple[int, ...]
    """Of its image's blocks, those whose content is not on the device still."""
    blocks: tuple[int, ...]
    """Of the device, where they go: one for each place."""


@dataclass(frozen=True, slots=True)
class ScheduledSequence:
    """The part of one sequence that a step computes: prefill chunk, decode and recompute look the same."""

    sequence_id: int
    token_ids: tuple[int, ...]
    """Tokens to compute, at positions ``start, start + 1, …`` of the sequence; one at least, the last maybe `DRAWN`."""
    start: int
    """Tokens before them whose keys and values lie in the blocks already."""
    block_table: tuple[int, ...]
    """Block of positions ``[i * block_size, (i + 1) * block_size)`` at index i; covers all tokens of this step."""
    draws: tuple[Draw, ...]
    """From the logits of the last token, or where there are draft tokens, of the last ones. Empty while more tokens are
    to be computed before the next can be drawn."""
    is_remote: bool = False
    """Whether its blocks are the receiver's."""
    adapter: int = NO_ADAPTER
    """Which of the model's adapters (`LoadedModel.adapters`) reads it."""
    num_draft_tokens: int = 0
    """Of ``token_ids``, the last ones, which are guessed: something is drawn from each of their rows, and from the row
    before them. Then nothing is `DRAWN`."""

    @property
    def num_draw_rows(self) -> int:
        """Rows whose logits are wanted, the last ones."""
        return 1 + self.num_draft_tokens if self.draws else 0

    @property
    def is_decode(self) -> bool:
        """Whether all that it computes is the token before the next, with what is guessed behind it."""
        return len(self.token_ids) == 1 + self.num_draft_tokens


def draw_rows(sequences: Sequence[ScheduledSequence]) -> list[int]:
    """Rows of the batch whose logits are wanted, ascending; those of a sequence follow each other."""
    rows: list[int] = []
    end = 0
    for part in sequences:
        end += len(part.token_ids)
        rows += range(end - part.num_draw_rows, end)
    return rows


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step. Before anything is computed, ``swaps_out`` take place, then all ``copies`` as if at the same time, then
    ``swaps_in``; what is swapped in is neither copied nor computed on in this step. Then ``sends`` take place, then
    ``calls_back``, on which the step may compute. ``copies_out`` may take place at any time in it.
    """

    sequences: tuple[ScheduledSequence, ...]
    """Single rows come behind others, and remote sequences last (`gpu_node.graph.share`)."""
    copies: tuple[BlockCopy, ...] = ()
    swaps_out: tuple[BlockSwap, ...] = ()
    swaps_in: tuple[BlockSwap, ...] = ()
    model: str = ""
    """The model whose step it is; need not be said while an executor has one model only."""
    sends: tuple[BlockMove, ...] = ()
    """To the receiver, one after another."""
    calls_back: tuple[BlockMove, ...] = ()
    """From the receiver."""
    generation: int = 0
    """Of the link to the receiver: in another one, all that the step counts on there is lost."""
    restores: tuple[Restore, ...] = ()
    """Written before all of this. An executor hears of them by `Executor.write_blocks`, and finds none here."""
    copies_out: tuple[BlockSwap, ...] = ()
    """Full blocks, which nothing of this step writes, to blocks of the host that nothing else of it touches."""

    @property
    def moves_out(self) -> tuple[BlockSwap, ...]:
        """All that goes to the host, for executors that make all of it before anything else."""
        return self.swaps_out + self.copies_out

    @property
    def is_empty(self) -> bool:
        """Nothing to do for a device."""
        moves = self.copies or self.moves_out or self.swaps_in or self.sends or self.calls_back or self.restores
        return not (self.sequences or moves)

    @property
    def needs_receiver(self) -> bool:
        """Whether anything of it is behind the link."""
        return bool(self.sends or self.calls_back) or any(part.is_remote for part in self.sequences)

    @property
    def num_tokens(self) -> int:
        """Rows of the batch."""
        return sum(len(sequence.token_ids) for sequence in self.sequences)

    @property
    def num_draft_tokens(self) -> int:
        """Rows of guessed tokens."""
        return sum(part.num_draft_tokens for part in self.sequences)

    @property
    def num_context_tokens(self) -> int:
        """Tokens whose keys and values are read on this device, all sequences together."""
        return sum(part.start + len(part.token_ids) for part in self.sequences if not part.is_remote)

    @property
    def num_remote_tokens(self) -> int:
        """Those that are read at the receiver."""
        return sum(part.start + len(part.token_ids) for part in self.sequences if part.is_remote)

    @property
    def num_attended_tokens(self) -> int:
        """Pairs of a row and a token that it attends to on this device: the row at position p attends to p + 1."""
        num_pairs = 0
        for part in self.sequences:
            if part.is_remote:
                continue
            num_rows = len(part.token_ids)
            num_pairs += num_rows * part.start + num_rows * (num_rows + 1) // 2
        return num_pairs


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step gave: one token or one error for every draw."""

    token_ids: Mapping[int, int]
    """Drawn token by sequence id (`Draw.sequence_id`)."""
    duration_s: float
    """How long the step took on the device, measured or predicted by the executor."""
    errors: Mapping[int, str] = field(default_factory=dict)
    """By sequence id, why no token could be drawn; it ends that request and no other."""
    idle_s: float = 0.0
    """How long the device had nothing to do before it, since the step before; 0.0 where that is not measured."""
    moves_s: float = 0.0
    """How long blocks moved to or from host memory ahead of it, where the device is only predicted."""
    logprobs: Mapping[int, TokenLogprob] = field(default_factory=dict)
    """By sequence id, of the draws that ask for them (`Draw.num_top`)."""
    embeddings: Mapping[int, bytes] = field(default_factory=dict)
    """By sequence id, of a model that embeds or scores (`LoadedModel.gives_rows`): float32, little-endian, the last row
    of the program's result: [hidden size], the hidden state behind the last norm or an encoder's pooled ones, or
    [labels], logits. Its ``token_ids`` mean nothing."""
    is_remote_lost: bool = False
    """Remote sequences' rows, and what was sent and called back, are worth nothing: the receiver missed its deadline,
    or refused. Local rows are right."""
    served_s: float = 0.0
    """Of ``duration_s``, what the device computed for others."""
    waited_s: float = 0.0
    """Of ``duration_s``, what it waited for a receiver."""
