"""The weights of a model, from either kind of file or made up, as tensors in memory of our own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from gpu_node.graph.program import Program
from gpu_node.graph.weight import Piece
from gpu_node.models import dummy_weights
from gpu_node.models.architectures.rotary import ROPE_FACTORS
from gpu_node.models.checkpoint import Checkpoint
from gpu_node.models.weight_check import stored_shapes
from shared.config.engine import LoadFormat

CPU = torch.device("cpu")


def load_weights(
    checkpoint: Checkpoint,
    program: Program,
    load_format: LoadFormat = "auto",
    *,
    device: torch.device = CPU,
    dtype: torch.dtype = torch.float32,
) -> dict[str, torch.Tensor]:
    """All weights of ``program`` by name. Of each tensor of the file, only the pieces that are used are kept.

    They lie on ``device``, in ``dtype``; `ROPE_FACTORS` stay float32, as the angles that are made of them.
    `ModelFileError` names file and tensor when one is missing, not wanted, of another shape, or not readable.
    """
    types = {ROPE_FACTORS: torch.float32}
    stored = stored_shapes(program)
    # the file is asked first: memory is taken for what is there, not for what a configuration claims
    tensors = _tensors(checkpoint, stored, load_format, device)
    weights = {
        weight.name: torch.empty(weight.shape, dtype=types.get(weight.name, dtype), device=device)
        for weight in program.weights
    }
    places = _places(program, weights)
    for name, values in tensors:
        _fill(places[name], values)
    if ROPE_FACTORS in places:
        assert checkpoint.config.rope is not None
        _fill(places[ROPE_FACTORS], torch.tensor(checkpoint.config.rope.factors, dtype=torch.float32))
    return weights


def _tensors(
    checkpoint: Checkpoint, stored: Mapping[str, tuple[int, ...]], load_format: LoadFormat, device: torch.device
) -> Iterator[tuple[str, torch.Tensor]]:
    path, config = checkpoint.path, checkpoint.config
    if load_format == "dummy":
        return dummy_weights.read_tensors(stored, device)
    if checkpoint.gguf is None:
        from gpu_node.models.hf import safetensors_weights  # needs its package only where there is such a file

        return safetensors_weights.read_tensors(path, config, stored)
    from gpu_node.models.gguf import gguf_weights  # likewise

    return gguf_weights.read_tensors(checkpoint.gguf, path, config, stored)


def _places(program: Program, weights: Mapping[str, torch.Tensor]) -> dict[str, list[tuple[Piece, torch.Tensor]]]:
    """By stored tensor, the pieces that are wanted of it, and where each goes."""
    places: dict[str, list[tuple[Piece, torch.Tensor]]] = {}
    for weight in program.weights:
        first = 0
        for piece in weight.sources:
            num_rows = piece.shape[0]
            places.setdefault(piece.tensor, []).append((piece, weights[weight.name][first : first + num_rows]))
            first += num_rows
    return places


def _fill(places: list[tuple[Piece, torch.Tensor]], values: torch.Tensor) -> None:
    for piece, place in places:
        place.copy_(values[tuple(slice(*bounds) for bounds in piece.ranges)])
