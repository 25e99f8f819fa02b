"""A request and its sequences while an engine has them.

One idea covers prefill, chunked prefill, decode, recompute after preemption and prefix hits: a sequence has tokens that
are *computed* (their keys and values lie in its blocks) and tokens that are *wanted*; each step moves computed toward
wanted, and where it arrives, the next token is drawn and wanted too.

What a planned step computes counts as computed, and what it draws as a token that is not known yet. Devices run steps
in their order, so nothing that is planned later can tell the difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gpu_node.engine.border.grammar import Grammar, Matcher
from gpu_node.engine.border.plan import NO_ADAPTER
from gpu_node.engine.requests.beams import Hypothesis, TopTokens
from gpu_node.engine.requests.drafter import Drafter
from gpu_node.engine.requests.image import RequestState
from gpu_node.engine.requests.structured_drafter import StructuredDrafter
from shared.messages.requests.payload import UNPROMISED_S, Output, Payload, Sampling
from shared.messages.requests.token_logprob import TokenLogprob


@dataclass(slots=True, eq=False)
class Sequence:
    """One continuation of a request: the prompt and the output so far."""

    sequence_id: int
    """Never used again in the life of an engine, so a late result can hit no other sequence."""
    choice: int
    """Its number in the request."""
    token_ids: list[int]
    """Those that are known: prompt and output."""
    num_prompt_tokens: int
    max_len: int
    """Most tokens that it can come to have, prompt and output together."""
    awaits_draws: bool = False
    """Nothing is planned behind a draw until its token is known: what follows is chosen among all beams, say."""
    matcher: Matcher | None = None
    """What may follow hangs on all tokens so far; None where any token may."""
    num_computed_tokens: int = 0
    """By the steps in flight too."""
    num_drawn_tokens: int = 0
    """Behind ``token_ids``: drawn by steps in flight, or not chosen yet."""
    drafter: Drafter | StructuredDrafter | None = None
    """Guesses its tokens; None where they are not guessed."""
    num_draft_tokens: int = 0
    """Behind its last token, in a step in flight: nothing is planned before it is known which of them hold."""
    logprobs: list[TokenLogprob] = field(default_factory=list)
    """Of the output, where the request is ranked by them."""
    sum_logprobs: float = 0.0
    continuations: TopTokens = ()
    """Of a beam: what may follow, until all beams of the request know theirs."""

    @property
    def num_missing_tokens(self) -> int:
        """Tokens still to compute before the next can be drawn; 0 while nothing can be planned."""
        num_tokens = len(self.token_ids) + self.num_drawn_tokens
        if self.num_drawn_tokens and (self.awaits_draws or self.num_draft_tokens or num_tokens >= self.max_len):
            return 0
        return num_tokens - self.num_computed_tokens

    @property
    def num_output_tokens(self) -> int:
        """Known tokens after the prompt, those of earlier attempts included."""
        return len(self.token_ids) - self.num_prompt_tokens

    def go_back(self, num_computed_tokens: int) -> None:
        """To so many computed tokens, but before the last known one: what steps in flight would draw is dropped."""
        self.num_computed_tokens = min(num_computed_tokens, len(self.token_ids) - 1)
        self.num_drawn_tokens = self.num_draft_tokens = 0
        self.continuations = ()


@dataclass(slots=True, eq=False)
class EngineRequest:
    """One client call: its sequences are admitted, preempted and resumed together.

    They begin with the same tokens. The first of them, the *leader*, computes these for all; then the others fork its
    blocks, and each goes on by itself. At the first run that is the prompt, and all choices are drawn from its last
    row; after a preemption, or on the next node, it is what the sequences that still run have in common.
    """

    payload: Payload
    order: int
    """Place in the order of arrival at this engine."""
    sequences: list[Sequence]
    """Those that have not ended."""
    num_shared_tokens: int = 0
    """What the leader computes for all; known when the request is admitted."""
    is_forked: bool = False
    """Every sequence holds blocks; before, only the leader does."""
    adapter: int = NO_ADAPTER
    """Number of its adapter."""
    num_top: int | None = None
    """As in `Draw`: the logprobs that its draws have to bring."""
    hypotheses: list[Hypothesis] = field(default_factory=list)
    """Of a ranked request, those that have ended."""
    parked: RequestState | None = None
    """While it waits to go on from an image: where its sequences' blocks are in that."""
    goes_over: bool = False
    """To the receiver, as soon as its prompt is computed; decided when it is admitted."""
    num_dropped_tokens: int = 0
    """What its leader had computed when it gave way, while that waits to be computed again."""
    num_cached_tokens: int | None = None
    """As in `Chunk.cached_tokens`: of its prompt, found when it was admitted first; None before, or where it is
    unknown. What it finds later may be its own, so it does not count."""
    first_enqueued_s: float = 0.0
    """When it arrived first, at any node; set by the scheduler that queues it."""

    @classmethod
    def of(cls, payload: Payload, order: int, sequence_ids: Iterator[int], max_model_len: int) -> EngineRequest:
        """The request of a payload. Output that the client has is taken over; choices that have ended are left out.

        A ranked request begins anew: its client has nothing, or has it all.
        """
        sampling = payload.sampling
        prompt = payload.prompt_token_ids
        outputs = [] if sampling.is_ranked else payload.outputs
        max_len = min(len(prompt) + sampling.max_tokens, max_model_len)
        request = cls(payload, order, [])
        for choice in range(1 if sampling.is_beam else num_places(sampling)):
            output = outputs[choice] if choice < len(outputs) else Output()
            if not output.finish_reason:
                token_ids = [*prompt, *output.token_ids]
                sequence = Sequence(next(sequence_ids), choice, token_ids, len(prompt), max_len, sampling.is_beam)
                request.sequences.append(sequence)
        return request

    def constrain(self, grammar: Grammar, *, awaits_draws: bool) -> str:
        """Let each sequence draw what ``grammar`` allows behind its output so far; why that cannot be, or ``""``."""
        for sequence in self.sequences:
            matcher = grammar.matcher()
            for token_id in sequence.token_ids[sequence.num_prompt_tokens :]:
                matcher.take(token_id)
            if matcher.error:
                return matcher.error
            sequence.matcher, sequence.awaits_draws = matcher, awaits_draws
        return ""

    @property
    def request_id(self) -> str:
        """Unique among the requests of an engine."""
        return self.payload.request_id

    @property
    def sampling(self) -> Sampling:
        """How its tokens are drawn."""
        return self.payload.sampling

    @property
    def num_places(self) -> int:
        """How many of an engine's ``max_num_seqs`` it takes; beams come and go, so they keep theirs to the end."""
        return num_places(self.sampling) if self.sampling.is_beam else len(self.sequences)

    @property
    def holders(self) -> list[Sequence]:
        """Those that hold blocks, on the device or in host memory, unless the request has none at all."""
        return self.sequences if self.is_forked else self.sequences[:1]

    @property
    def is_prefill(self) -> bool:
        """More is to be computed of it before the next token than the token before."""
        return not self.is_forked or any(sequence.num_missing_tokens > 1 for sequence in self.sequences)

    @property
    def due_s(self) -> float:
        """Until when its promise wants it whole."""
        return self.payload.due_s or self.first_enqueued_s + UNPROMISED_S

    @property
    def num_tokens(self) -> int:
        """Prompt and output so far, of its longest sequence."""
        if len(self.sequences) == 1:  # most by far, and each that waits is asked
            return len(self.sequences[0].token_ids)
        return max(len(sequence.token_ids) for sequence in self.sequences)

    @property
    def num_left_tokens(self) -> int:
        """Most tokens that may still come of one of its sequences."""
        return max(sequence.max_len - len(sequence.token_ids) for sequence in self.sequences)

    @property
    def has_computed(self) -> bool:
        """There is KV that would be worth keeping."""
        return any(sequence.num_computed_tokens for sequence in self.holders)


def num_places(sampling: Sampling) -> int:
    """Most sequences that a request has at once."""
    return max(sampling.num_choices, sampling.num_candidates)


def num_common_tokens(sequences: list[Sequence]) -> int:
    """Length of the longest common beginning, in tokens."""
    first, *others = (sequence.token_ids for sequence in sequences)
    num_common = len(first)
    for other in others:
        limit = min(num_common, len(other))
        if first[:limit] != other[:limit]:
            limit = next(place for place in range(limit) if first[place] != other[place])
        num_common = limit
    return num_common
