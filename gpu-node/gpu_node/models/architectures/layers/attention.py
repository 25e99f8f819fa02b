"""The attention half of a layer, as all families have it: project, attend over the paged KV cache, project, add."""

from __future__ import annotations

from gpu_node.graph.program import OperatorKind
from gpu_node.graph.weight import Weight
from gpu_node.models.architectures.layers.builder import ProgramBuilder


def attention(
    build: ProgramBuilder,
    layer: int,
    *,
    rotary: bool = False,
    head_norm: bool = False,
    bias: bool = False,
    output_bias: bool = False,
) -> None:
    """Read ``normed``, write keys and values into the layer's blocks, and add what was attended to ``hidden``.

    ``head_norm``: each head of queries and keys is normalised; ``bias``: of queries, keys and values.
    """
    config, prefix = build.config, f"layers.{layer}."
    for name, columns in (("q", config.q_size), ("k", config.kv_size), ("v", config.kv_size)):
        build.linear("normed", name, prefix + name, columns, bias=bias)
    for name in ("q", "k"):
        if head_norm:
            weight = Weight(f"{prefix}{name}_norm", (config.head_dim,))
            build.add(OperatorKind.HEAD_NORM, (name,), name, [weight], epsilon=config.norm_epsilon)
        if rotary:
            build.add(OperatorKind.ROPE, (name, "angles"), name)
    build.add(OperatorKind.WRITE_KV, ("k", "v"), layer=layer)
    window, head_dim = config.window(layer), config.head_dim
    if window is None:
        build.add(OperatorKind.PAGED_ATTENTION, ("q",), "attended", layer=layer, head_dim=head_dim)
    else:
        build.add(OperatorKind.WINDOW_ATTENTION, ("q",), "attended", layer=layer, head_dim=head_dim, window=window)
    build.linear("attended", "branch", prefix + "o", config.hidden_size, bias=output_bias)
    build.add(OperatorKind.ADD, ("hidden", "branch"), "hidden")
