"""How long an engine's steps take: the numbers that predict a step on one device with one model.

Every step reads the weights once; every row of it is multiplied with them; the keys and values of each sequence's
context are read once, and every row is multiplied with those of the tokens that it attends to. (NanoFlow, OSDI'25, §3:
T_mem and T_compute; added here, since a step's operators run one after another.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

NOTHING_CACHED = 0.0


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds of a step; learnt from measured steps, or computed from published numbers of the hardware."""

    step_s: float
    """Of every step: launching it, reading the weights, and what the device waits for its host."""
    token_s: float
    """Of a row: its part of the products."""
    context_token_s: float
    """Of a token whose keys and values are read: each token of a sequence once, for all its rows together."""
    attended_token_s: float = 0.0
    """Of a row and a token that it attends to: their part of attention's products."""
    remote_token_s: float = 0.0
    """Of a token whose keys and values lie at a receiver, in place of both of these: what the step is longer by, as far
    as other work does not cover the wait. 0.0 where nothing is lent."""

    @property
    def numbers(self) -> tuple[float, ...]:
        """All of them in their order, as `dataclasses.astuple` has them, which copies each: heartbeats are asked."""
        return (self.step_s, self.token_s, self.context_token_s, self.attended_token_s, self.remote_token_s)

    @property
    def decode_context_token_s(self) -> float:
        """Of a token in the context of a sequence that has one row, as every one has that decodes."""
        return self.context_token_s + self.attended_token_s

    def predict_s(
        self,
        num_tokens: float,
        num_context_tokens: float,
        num_attended_tokens: float = 0.0,
        num_remote_tokens: float = 0.0,
    ) -> float:
        """Duration of a step of so many rows, which read and attend to so many tokens together, here and elsewhere."""
        return (
            self.step_s
            + self.token_s * num_tokens
            + self.context_token_s * num_context_tokens
            + self.attended_token_s * num_attended_tokens
            + self.remote_token_s * num_remote_tokens
        )

    def with_remote_share(self, share: float) -> StepCost:
        """Where so much of all context lies at a receiver: a token of context costs the mean. For decoding; prompts,
        which are computed at home, are taken for the same."""
        return StepCost(
            step_s=self.step_s,
            token_s=self.token_s,
            context_token_s=(1 - share) * self.context_token_s + share * self.remote_token_s,
            attended_token_s=(1 - share) * self.attended_token_s,
        )


@dataclass(frozen=True, slots=True)
class DecodeYield:
    """What a sequence that decodes has of a step and gets from it, in the mean: more than one where tokens are guessed.

    ``tokens`` is 1 and the guesses that are kept, whose expectation Leviathan et al. (ICML'23, equation 1) work out as
    (1 - α^(γ + 1)) / (1 - α) from γ guesses that hold with α each. It is measured here, since γ and α differ.
    """

    rows: float = 1.0
    """Its last token, and the guesses behind it."""
    tokens: float = 1.0
    """At most as many."""

    @property
    def numbers(self) -> tuple[float, ...]:
        """Both, as of a `StepCost`."""
        return (self.rows, self.tokens)


ONE_TOKEN = DecodeYield()
"""Without guesses."""


@dataclass(frozen=True, slots=True)
class ModelRate:
    """What one model can do on one node."""

    model: str
    cost: StepCost
    """Of the node's device with this model, as far as it has been learnt."""
    kv_tokens: int
    """Tokens whose keys and values fit into the device's memory beside the weights."""
    kv_token_bytes: int
    """Keys and values of one token."""
    load_s: float
    """Until the model could serve here, from where its weights are now: 0.0 while it is loaded."""
    cached_share: float = NOTHING_CACHED
    """Of the tokens of prompts, those that were found in a cache of late and not computed."""
    kv_format: str = ""
    """Names how keys and values lie in its blocks, as the node has told since it loaded the model; else empty."""
    decode: DecodeYield = ONE_TOKEN
    """Of a sequence in a step, of late."""
    step_tokens: int = 0
    """Most rows of a step of this model, as of encoders, whose texts are computed whole; 0: those of any at the node
    (`NodeFacts.step_tokens`)."""

    def takes_kv_of(self, other: ModelRate) -> bool:
        """Whether the node goes on with keys and values that were computed on another, as far as is known."""
        return not self.kv_format or not other.kv_format or self.kv_format == other.kv_format

    def lent_to(self, model: str, load_s: float) -> ModelRate:
        """The same of a model of which nothing better is known: what is this one's own says nothing of it."""
        return replace(self, model=model, load_s=load_s, kv_format="", decode=ONE_TOKEN, step_tokens=0)
