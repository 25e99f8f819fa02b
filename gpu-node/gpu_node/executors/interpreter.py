"""Runs a program operator by operator, each as soon as it is read: the plainest way, and the truth for the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from gpu_node import kernels
from gpu_node.graph.program import POSITIONS, TOKEN_IDS, Kind, Operator, Program
from gpu_node.kernels.paged_batch import PagedBatch


@dataclass(frozen=True, slots=True)
class StepInputs:
    """What changes from step to step."""

    token_ids: torch.Tensor
    """int64 [rows]."""
    batch: PagedBatch
    draw_rows: torch.Tensor
    """int64 [draws]: the rows whose logits are wanted."""


@dataclass(frozen=True, slots=True)
class Device:
    """What stays: weights by name, and the KV cache of each layer."""

    weights: Mapping[str, torch.Tensor]
    kv_caches: Sequence[torch.Tensor]


def run_program(program: Program, device: Device, inputs: StepInputs) -> torch.Tensor:
    """Run all operators in their order; returns the logits, float32 [draws, vocabulary]."""
    buffers = {TOKEN_IDS: inputs.token_ids, POSITIONS: inputs.batch.positions}
    for operator in program.operators:
        arguments = [buffers[name] for name in operator.inputs]
        arguments += [device.weights[name] for name in operator.weights]
        output = _RUN[operator.kind](operator, arguments, device, inputs)
        if operator.outputs:
            assert output is not None
            buffers[operator.outputs[0]] = output
    return buffers[program.result]


_Run = Callable[[Operator, list[torch.Tensor], Device, StepInputs], torch.Tensor | None]


def _cache(operator: Operator, device: Device) -> torch.Tensor:
    assert operator.layer is not None
    return device.kv_caches[operator.layer]


def _norm(kernel: Callable[..., torch.Tensor]) -> _Run:
    return lambda operator, args, _device, _inputs: kernel(*args, operator.attributes["epsilon"])


def _plain(kernel: Callable[..., torch.Tensor]) -> _Run:
    return lambda _operator, args, _device, _inputs: kernel(*args)


def _rope_angles(operator: Operator, args: list[torch.Tensor], _device: Device, _inputs: StepInputs) -> torch.Tensor:
    return kernels.rope_angles(args[0], int(operator.attributes["head_dim"]), operator.attributes["theta"])


def _scaled_angles(operator: Operator, args: list[torch.Tensor], _device: Device, _inputs: StepInputs) -> torch.Tensor:
    return kernels.scaled_rope_angles(args[0], args[1], operator.attributes["theta"])


def _write_kv(operator: Operator, args: list[torch.Tensor], device: Device, inputs: StepInputs) -> None:
    kernels.write_kv(args[0], args[1], _cache(operator, device), inputs.batch)


def _paged_attention(operator: Operator, args: list[torch.Tensor], device: Device, inputs: StepInputs) -> torch.Tensor:
    return kernels.paged_attention(args[0], _cache(operator, device), inputs.batch)


def _window_attention(operator: Operator, args: list[torch.Tensor], device: Device, inputs: StepInputs) -> torch.Tensor:
    window = int(operator.attributes["window"])
    return kernels.window_attention(args[0], _cache(operator, device), inputs.batch, window)


def _route(operator: Operator, args: list[torch.Tensor], _device: Device, _inputs: StepInputs) -> torch.Tensor:
    return kernels.route(args[0], int(operator.attributes["num_chosen"]))


_RUN: Mapping[Kind, _Run] = {
    Kind.EMBEDDING: _plain(kernels.embedding),
    Kind.RMS_NORM: _norm(kernels.rms_norm),
    Kind.HEAD_NORM: _norm(kernels.head_norm),
    Kind.LAYER_NORM: _norm(kernels.layer_norm),
    Kind.LINEAR: _plain(kernels.linear),
    Kind.LINEAR_BIAS: _plain(kernels.linear_bias),
    Kind.ROPE_ANGLES: _rope_angles,
    Kind.SCALED_ROPE_ANGLES: _scaled_angles,
    Kind.ROPE: _plain(kernels.rope),
    Kind.WRITE_KV: _write_kv,
    Kind.PAGED_ATTENTION: _paged_attention,
    Kind.WINDOW_ATTENTION: _window_attention,
    Kind.SILU_MUL: _plain(kernels.silu_mul),
    Kind.RELU: _plain(kernels.relu),
    Kind.GELU: _plain(kernels.gelu),
    Kind.ROUTE: _route,
    Kind.EXPERTS: _plain(kernels.experts),
    Kind.ADD: _plain(torch.add),
    Kind.SELECT_DRAWS: lambda _operator, args, _device, inputs: args[0][inputs.draw_rows],
}
