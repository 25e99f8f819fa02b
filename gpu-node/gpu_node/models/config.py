"""Numbers that define a model, whatever file they come from; names follow what they count, not any file format."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Family(StrEnum):
    """Models of one architecture; the names are those of Hugging Face's ``model_type``."""

    LLAMA = "llama"
    MISTRAL = "mistral"
    QWEN2 = "qwen2"
    QWEN3 = "qwen3"
    MIXTRAL = "mixtral"
    OPT = "opt"
    GPT2 = "gpt2"
    BERT = "bert"
    ROBERTA = "roberta"
    XLM_ROBERTA = "xlm-roberta"
    NOMIC_BERT = "nomic_bert"
    NEW = "new"
    """GTE's, as the code beside their files calls it."""
    GTE = "gte"
    """The same, as `transformers` calls it."""
    MODERN_BERT = "modernbert"


TURNED_ENCODERS = frozenset({Family.NOMIC_BERT, Family.NEW, Family.GTE, Family.MODERN_BERT})
"""Encoders with rotary positions; all of them have gated feed-forward networks."""
ENCODERS = frozenset({Family.BERT, Family.ROBERTA, Family.XLM_ROBERTA}) | TURNED_ENCODERS
"""Families whose tokens see those behind them, too: they embed and score whole texts, and write none."""


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding: pair i of a head turns by position / (theta ** (2i / head_dim) * factors[i])."""

    theta: float
    factors: tuple[float, ...] = ()
    """One for each pair of a head; empty where none is slowed down."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shape and constants of a model."""

    family: Family
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    """Columns between the two halves of a feed-forward network, or of one expert."""
    vocab_size: int
    context_length: int
    """Most tokens of a sequence; models with learned positions have no position beyond it."""
    norm_epsilon: float
    tied_embedding: bool
    """The logits are made with the embedding itself."""
    eos_token_ids: frozenset[int]
    rope: Rope | None = None
    """None: positions are learned."""
    windows: tuple[int | None, ...] = ()
    """For each layer, how many tokens a token attends to, itself included; None or no entry: all before it. Of an
    encoder, as many from itself on, too."""
    window_rope: Rope | None = None
    """Of layers that have a window, where theirs is another one."""
    num_experts: int = 0
    num_experts_per_token: int = 0
    num_segments: int = 0
    """Of encoders: texts of a pair that are told apart; 0 for a model without embeddings for them."""
    num_skipped_positions: int = 0
    """Rows at the beginning of the table of learned positions that no token has."""

    @property
    def is_encoder(self) -> bool:
        """Whether all of a text is read at once."""
        return self.family in ENCODERS

    @property
    def max_length(self) -> int:
        """Most tokens of a request, prompt and output together. What an encoder gives in an output's place counts as
        one token, which has no position."""
        return self.context_length + self.is_encoder

    @property
    def q_size(self) -> int:
        """Columns of all queries of a token."""
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Columns of all keys of a token, and of all values."""
        return self.num_kv_heads * self.head_dim

    def window(self, layer: int) -> int | None:
        """How far back a token of ``layer`` attends, in tokens with itself; None for all."""
        return self.windows[layer] if self.windows else None
