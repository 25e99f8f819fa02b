"""What the stacks of adapters' matrices are called among the weights of a program."""

from __future__ import annotations

_SHRINKS, _EXPANDS = ".lora_a", ".lora_b"


def shrinks(tensor: str) -> str:
    """The matrices A of all adapters for a weight of this canonical name: [adapters, rank, inputs]."""
    return tensor + _SHRINKS


def expands(tensor: str) -> str:
    """Their matrices B, times their scales: [adapters, outputs, rank]."""
    return tensor + _EXPANDS


def is_stack(name: str) -> bool:
    """Whether a weight, or a part of one, comes from the files of adapters instead of the model's."""
    return _SHRINKS in name or _EXPANDS in name


def adapted(stack: str) -> str:
    """The weight that a stack is for."""
    return stack.removesuffix(_SHRINKS).removesuffix(_EXPANDS)
