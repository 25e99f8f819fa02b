"""The feed-forward half of a layer: gated, plain, or a mixture of experts. Reads ``normed``, adds to ``hidden``."""

from __future__ import annotations

from gpu_node.graph.program import OperatorKind
from gpu_node.graph.weight import Weight
from gpu_node.models.architectures.layers.builder import ProgramBuilder


def gated(build: ProgramBuilder, layer: int) -> None:
    """``down(silu(gate(x)) * up(x))``."""
    config, prefix = build.config, f"layers.{layer}."
    for name in ("gate", "up"):
        build.linear("normed", name, prefix + name, config.intermediate_size)
    build.add(OperatorKind.SILU_MUL, ("gate", "up"), "activated")
    build.linear("activated", "branch", prefix + "down", config.hidden_size)
    build.add(OperatorKind.ADD, ("hidden", "branch"), "hidden")


def plain(build: ProgramBuilder, layer: int, activation: OperatorKind) -> None:
    """``down(activation(up(x)))``, both with biases."""
    config, prefix = build.config, f"layers.{layer}."
    build.linear("normed", "up", prefix + "up", config.intermediate_size, bias=True)
    build.add(activation, ("up",), "activated")
    build.linear("activated", "branch", prefix + "down", config.hidden_size, bias=True)
    build.add(OperatorKind.ADD, ("hidden", "branch"), "hidden")


def mixture_of_experts(build: ProgramBuilder, layer: int) -> None:
    """A router chooses a few gated networks for each row, and says how much each of them counts."""
    config, prefix = build.config, f"layers.{layer}."
    num_experts, hidden, inner = config.num_experts, config.hidden_size, config.intermediate_size
    build.linear("normed", "router", prefix + "router", num_experts)
    build.add(OperatorKind.ROUTE, ("router",), "routing", num_chosen=config.num_experts_per_token)
    experts = [
        Weight(f"{prefix}experts_gate", (num_experts, inner, hidden)),
        Weight(f"{prefix}experts_up", (num_experts, inner, hidden)),
        Weight(f"{prefix}experts_down", (num_experts, hidden, inner)),
    ]
    chosen = config.num_experts_per_token
    build.add(OperatorKind.EXPERTS, ("normed", "routing"), "branch", experts, num_chosen=chosen)
    build.add(OperatorKind.ADD, ("hidden", "branch"), "hidden")
