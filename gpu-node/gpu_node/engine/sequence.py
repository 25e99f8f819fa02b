"""A request and its sequences while an engine has them.

One idea covers prefill, chunked prefill, decode, recompute after preemption and prefix hits: a sequence has tokens that
are *computed* (their keys and values lie in its blocks) and tokens that are *wanted*; each step moves computed toward
wanted, and where it arrives, the next token is drawn and wanted too.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.messages import Payload, Sampling


@dataclass(slots=True)
class Sequence:
    """One continuation of a request: the prompt and the output so far."""

    sequence_id: int
    """Never used again in the life of an engine, so a late result can hit no other sequence."""
    token_ids: list[int]
    num_prompt_tokens: int
    num_computed_tokens: int = 0

    @property
    def num_missing_tokens(self) -> int:
        """Tokens still to compute before the next can be drawn; at least 1 between steps."""
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def num_output_tokens(self) -> int:
        """Tokens after the prompt, those of earlier attempts included."""
        return len(self.token_ids) - self.num_prompt_tokens


@dataclass(slots=True, eq=False)
class Request:
    """One client call: its sequences are admitted, preempted and resumed together.

    Today a request has one sequence; parallel sampling and beams add theirs here (`BlockManager.fork`).
    """

    payload: Payload
    order: int
    """Place in the order of arrival at this engine."""
    sequences: list[Sequence]

    @classmethod
    def of(cls, payload: Payload, number: int) -> Request:
        """The request of a payload; output that an earlier attempt made counts as output, and is computed again."""
        output = payload.outputs[0].token_ids if payload.outputs else []
        token_ids = [*payload.prompt_token_ids, *output]
        return cls(payload, number, [Sequence(number, token_ids, len(payload.prompt_token_ids))])

    @property
    def request_id(self) -> str:
        """Unique among the requests of an engine."""
        return self.payload.request_id

    @property
    def sampling(self) -> Sampling:
        """How its tokens are drawn."""
        return self.payload.sampling

    @property
    def is_decoding(self) -> bool:
        """Every sequence lacks just the token drawn last."""
        return all(sequence.num_missing_tokens == 1 for sequence in self.sequences)
