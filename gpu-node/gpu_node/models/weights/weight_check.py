"""Whether a model's files hold its weights, in the words of those that read them, and without tensors."""

from __future__ import annotations

from contextlib import ExitStack

from gpu_node.graph.program import Program
from gpu_node.graph.stack_names import is_stack
from gpu_node.models.architectures.layers.rotary import ROPE_FACTORS
from gpu_node.models.checkpoint import Checkpoint


def stored_shapes(program: Program) -> dict[str, tuple[int, ...]]:
    """Shapes of the model's tensors that a program's weights are made of, by canonical name; without adapters'."""
    pieces = (piece for weight in program.weights for piece in weight.sources)
    return {
        piece.tensor: piece.stored_shape
        for piece in pieces
        if piece.tensor != ROPE_FACTORS and not is_stack(piece.tensor)
    }


def check_weights(checkpoint: Checkpoint, program: Program) -> None:
    """`ModelFileError` names file and tensor when one is missing, not wanted, of another shape, or not readable."""
    shapes = stored_shapes(program)
    if checkpoint.gguf is not None:
        from gpu_node.models.gguf import gguf_tensors  # needs its package only where there is such a file

        gguf_tensors.wanted_tensors(checkpoint.gguf, checkpoint.path, checkpoint.config, shapes)
        return
    from gpu_node.models.hf import safetensors_tensors  # likewise

    with ExitStack() as open_files:
        safetensors_tensors.wanted_tensors(checkpoint.path, checkpoint.config, shapes, open_files, framework="np")
