"""Llama as a program: pre-norm transformer, rotary embeddings, grouped-query attention, gated SiLU feed-forward."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_node.graph.program import POSITIONS, TOKEN_IDS, Buffer, Kind, Operator, OperatorClass, Program, Rows, Weight
from gpu_node.models.config import ModelConfig

_COMPUTE = OperatorClass.COMPUTE


def build_llama(config: ModelConfig) -> Program:
    """The program of a Llama model. Buffers are named by what they hold and used again in every layer."""
    hidden, inner, vocab = config.hidden_size, config.intermediate_size, config.vocab_size
    q_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    epsilon = {"epsilon": config.rms_norm_epsilon}
    weights = [Weight("embedding", (vocab, hidden)), Weight("norm", (hidden,))]
    rope = {"head_dim": config.head_dim, "theta": config.rope_theta}
    operators = [
        Operator(Kind.EMBEDDING, (TOKEN_IDS,), ("hidden",), ("embedding",)),
        Operator(Kind.ROPE_ANGLES, (POSITIONS,), ("angles",), attributes=rope),
    ]
    for layer in range(config.num_layers):
        operators += _layer(config, layer)
        weights += [
            Weight(f"layers.{layer}.attention_norm", (hidden,)),
            Weight(f"layers.{layer}.q", (q_size, hidden)),
            Weight(f"layers.{layer}.k", (kv_size, hidden)),
            Weight(f"layers.{layer}.v", (kv_size, hidden)),
            Weight(f"layers.{layer}.o", (hidden, q_size)),
            Weight(f"layers.{layer}.mlp_norm", (hidden,)),
            Weight(f"layers.{layer}.gate", (inner, hidden)),
            Weight(f"layers.{layer}.up", (inner, hidden)),
            Weight(f"layers.{layer}.down", (hidden, inner)),
        ]
    if not config.tied_embedding:
        weights.append(Weight("lm_head", (vocab, hidden)))
    head = "embedding" if config.tied_embedding else "lm_head"
    operators += [
        # only rows that draw a token go through the head, by far the largest product for a long prompt
        Operator(Kind.SELECT_DRAWS, ("hidden",), ("drawn",)),
        Operator(Kind.RMS_NORM, ("drawn",), ("drawn_normed",), ("norm",), attributes=epsilon),
        Operator(Kind.LINEAR, ("drawn_normed",), ("logits",), (head,), _COMPUTE),
    ]
    token_columns = {"hidden": hidden, "normed": hidden, "branch": hidden, "q": q_size, "k": kv_size, "v": kv_size}
    token_columns |= {"attended": q_size, "gate": inner, "up": inner, "activated": inner, "angles": config.head_dim}
    draw_columns = {"drawn": hidden, "drawn_normed": hidden, "logits": vocab}
    buffers = [Buffer(name, num_columns) for name, num_columns in token_columns.items()]
    buffers += [Buffer(name, num_columns, Rows.DRAWS) for name, num_columns in draw_columns.items()]
    return Program(tuple(operators), tuple(buffers), tuple(weights), result="logits")


def _layer(config: ModelConfig, layer: int) -> Iterator[Operator]:
    epsilon = {"epsilon": config.rms_norm_epsilon}

    def weight(name: str) -> tuple[str]:
        return (f"layers.{layer}.{name}",)

    yield Operator(Kind.RMS_NORM, ("hidden",), ("normed",), weight("attention_norm"), attributes=epsilon)
    for name in ("q", "k", "v"):
        yield Operator(Kind.LINEAR, ("normed",), (name,), weight(name), _COMPUTE)
    yield Operator(Kind.ROPE, ("q", "angles"), ("q",))
    yield Operator(Kind.ROPE, ("k", "angles"), ("k",))
    yield Operator(Kind.WRITE_KV, ("k", "v"), (), layer=layer)
    yield Operator(Kind.PAGED_ATTENTION, ("q",), ("attended",), layer=layer)
    yield Operator(Kind.LINEAR, ("attended",), ("branch",), weight("o"), _COMPUTE)
    yield Operator(Kind.ADD, ("hidden", "branch"), ("hidden",))
    yield Operator(Kind.RMS_NORM, ("hidden",), ("normed",), weight("mlp_norm"), attributes=epsilon)
    for name in ("gate", "up"):
        yield Operator(Kind.LINEAR, ("normed",), (name,), weight(name), _COMPUTE)
    yield Operator(Kind.SILU_MUL, ("gate", "up"), ("activated",))
    yield Operator(Kind.LINEAR, ("activated",), ("branch",), weight("down"), _COMPUTE)
    yield Operator(Kind.ADD, ("hidden", "branch"), ("hidden",))
