"""Nodes and groups of a virtual queue, in few words."""

from __future__ import annotations

from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import GroupLoad
from shared.messages.nodes.step_cost import ModelRate, StepCost


def node(
    cost: StepCost,
    *,
    num_seqs: int = 4,
    step_tokens: int = 0,
    kv_tokens: int = 0,
    model: str = "a",
    load_s: float = 7.0,
    broken: str = "",
) -> NodeState:
    """Holds ``model``, knows models a and b; moves 1,000 tokens of KV a second."""
    rates = [ModelRate(name, cost, kv_tokens, 100, 0.0 if name == model else load_s) for name in "ab"]
    return NodeState(
        "n0",
        model,
        swap_s=5.0,
        broken_models=[broken] if broken else [],
        max_num_seqs=num_seqs,
        step_tokens=step_tokens,
        kv_bytes_per_s=100_000.0,
        rates=rates,
    )


def group(
    model: str = "a",
    *,
    prompt: float = 0.0,
    std_prompt: float = 0.0,
    output: float = 10.0,
    std: float = 0.0,
    waiting: int = 1,
    running: int = 0,
    left: float = 0.0,
    kv_tokens: float = 0.0,
    kv_at: str = "",
    error: float = 0.0,
    gid: str = "g",
) -> GroupLoad:
    """``left`` is what the running members have left, all together."""
    return GroupLoad(
        gid,
        model=model,
        deadline_s=1e6,
        num_waiting=waiting,
        num_running=running,
        mean_prompt_tokens=prompt,
        mean_output_tokens=output,
        std_output_tokens=std,
        running_output_tokens=left,
        kv_tokens=kv_tokens,
        kv_at=kv_at,
        kept_tokens=kv_tokens / (waiting + running) if kv_at else 0.0,
        std_prompt_tokens=std_prompt,
        output_error_tokens=error,
    )
