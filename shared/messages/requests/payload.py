"""What a node needs to run a request: its tokens, how more of them are drawn, and what the client has already.

It travels apart from the messages about the request, in a key of its own (`shared.bus.streams`), as MessagePack like
them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from shared.messages.prefixes.partitions import owner_of
from shared.messages.requests.pictures import Picture

UNPROMISED_S = 86_400.0
"""A request that does not say until when it is due is so within a day: `shared.messages.requests.slo.UNBOUNDED_S`."""

BEAM_SEARCH = "beam search"

ConstraintKind = Literal["json_schema", "regex", "choice", "grammar"]


@dataclass(frozen=True, slots=True)
class Constraint:
    """What an output has to be: a word of a formal language. Tokens that cannot lead there are never drawn.

    An output ends where its language allows it, or at ``max_tokens``, then maybe in the middle of a word.
    """

    kind: ConstraintKind
    text: str
    """A JSON schema; a regular expression of the whole output (of Rust's regex crate); a JSON list of texts, of which
    it is one; or a context-free grammar, in Lark's or llama.cpp's (GBNF) notation."""
    lead: str = ""
    """What stands before that word: Lark's rules, the first of them ``lead``; ``""`` for nothing."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. Chance depends on (seed, choice, position) only, never on the rest of the batch."""

    max_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    """Keep the k most likely tokens; 0 keeps all."""
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    is_seeded: bool = False
    """The client gave the seed: equal ones draw equal tokens. Else it is any number, and an engine may draw by its
    own."""
    stop_token_ids: list[int] = field(default_factory=list)
    ignore_eos: bool = False
    presence_penalty: float = 0.0
    """Taken off the logit of each token that the output has."""
    frequency_penalty: float = 0.0
    """Taken off the logit of each token as often as the output has it."""
    repetition_penalty: float = 1.0
    """Divides positive logits, multiplies negative ones, of tokens that prompt or output has."""
    logit_bias: list[tuple[int, float]] = field(default_factory=list)
    """Token ids, each with what is added to its logit."""
    num_logprobs: int | None = None
    """None asks for no logprobs; 0 for those of the drawn tokens; k for the k most likely beside them."""
    num_choices: int = 1
    """Continuations that the client gets."""
    num_candidates: int = 1
    """Continuations that are made, of which the best ``num_choices`` are returned; beams, where ``is_beam``."""
    is_beam: bool = False
    """Candidates are the most likely sequences (beam search) instead of independent draws."""
    length_penalty: float = 1.0
    """Candidates are ranked by their summed logprobs over their length to this power."""
    constraint: Constraint | None = None
    """What each continuation has to be; None for any text. Not beside ``is_beam``."""
    is_embedding: bool = False
    """No token is drawn behind the prompt: the model's last hidden state there is the answer (`Chunk.embedding`), or
    the logits of a model that scores. With one choice and ``max_tokens`` of 1, as which the answer counts."""

    @property
    def has_penalties(self) -> bool:
        """The tokens so far change how likely the next ones are."""
        return bool(self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0)

    @property
    def needs(self) -> str:
        """What not every engine can do, by the name under which `NodeFacts.lacks` has it; ``""`` where any can."""
        return BEAM_SEARCH if self.is_beam else ""

    @property
    def is_ranked(self) -> bool:
        """Which candidates are returned is known at the end only: nothing is streamed before."""
        return self.is_beam or self.num_candidates > self.num_choices


@dataclass(frozen=True, slots=True)
class Output:
    """What the client has of one choice, from earlier attempts."""

    token_ids: list[int] = field(default_factory=list)
    finish_reason: str = ""
    """Not ``""`` where the choice has ended."""


@dataclass(frozen=True, slots=True)
class Payload:
    """What a node needs to run an attempt; owned, rewritten and deleted by the gateway."""

    request_id: str
    attempt: int
    gateway: str
    model: str
    prompt_token_ids: list[int]
    sampling: Sampling
    outputs: list[Output] = field(default_factory=list)
    """What the client already has of each choice; empty when it has nothing."""
    traceparent: str = ""
    num_crashes: int = 0
    """Engines that have died with it since it last brought a token: not 0 makes it a suspect, which begins alone."""
    enqueued_s: float = 0.0
    """When its client asked, in Unix time by the gateway's clock, at every attempt; 0.0 where it does not say."""
    due_s: float = 0.0
    """Likewise, until when its promise wants the last token; 0.0 where it does not say."""
    adapter: str = ""
    """Which of the model's adapters it asks for; ``""`` for the model itself."""
    pictures: list[Picture] = field(default_factory=list)
    """Images of the prompt, in its order. In Redis without their content, which has a key of its own
    (`shared.bus.streams.pictures`)."""
    partition: str = ""
    """Of all caches, the part that it uses (`shared.messages.prefixes.partitions`); ``""``: the one that all share."""
    weights: str = ""
    """What its gateway means by ``model`` and ``adapter``, whose tokens these are
    (`shared.config.engines.model_changes.weights_mark`); ``""`` where it does not say."""

    @property
    def owner(self) -> str:
        """Whose the blocks are that it finds in caches, and leaves there: its adapter's, within its partition."""
        return owner_of(self.adapter, self.partition)

    @property
    def num_prompt_tokens(self) -> int:
        """As many as are computed at most: of an image, those that the model reads in the place of its one token."""
        return len(self.prompt_token_ids) + sum(picture.num_tokens - 1 for picture in self.pictures)
