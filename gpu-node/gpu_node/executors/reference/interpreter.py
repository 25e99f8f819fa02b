"""Runs a program operator by operator, each as soon as it is read: the plainest way, and the truth for the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from gpu_node.engine.border.plan import BlockSwap
from gpu_node.executors.collectives import ALONE, DeviceGroup
from gpu_node.executors.reference.receiver import NOBODY, AttentionTask, Receiver
from gpu_node.executors.reference.step_memory import StepMemory
from gpu_node.graph.lanes import permitted_order
from gpu_node.graph.program import Operator, OperatorKind, Program
from gpu_node.graph.share import WHOLE
from gpu_node.kernels import operations
from gpu_node.kernels.paged_batch import PagedBatch


@dataclass(frozen=True, slots=True)
class InterpreterInputs:
    """What changes from step to step."""

    token_ids: torch.Tensor
    """int64 [rows]."""
    batch: PagedBatch
    draw_rows: torch.Tensor
    """int64 [draws]: the rows whose logits are wanted, in ascending order."""
    copies_out: Sequence[BlockSwap] = ()
    """What operators of that kind copy."""
    adapters: torch.Tensor | None = None
    """int64 [rows]: the adapter of each; -1 for none. Needed where the program has any."""


def nobody_waits() -> None:
    """A poll that finds nothing to do."""


@dataclass(frozen=True, slots=True)
class ReferenceDevice:
    """What stays: weights by name, the KV cache of each layer, and which other devices there are."""

    weights: Mapping[str, torch.Tensor]
    kv_caches: Sequence[torch.Tensor]
    group: DeviceGroup = ALONE
    poll: Callable[[], None] = nobody_waits
    """Called by each poll of the program."""
    receiver: Receiver = NOBODY
    """The device that attends for remote sequences."""
    host: Sequence[torch.Tensor] = ()
    """Blocks of each layer in host memory."""


def run_program(
    program: Program,
    device: ReferenceDevice,
    inputs: InterpreterInputs,
    choose: Callable[[int], int] | None = None,
) -> torch.Tensor:
    """Run all operators; returns the logits, float32 [draws, vocabulary].

    In their order; or, with ``choose``, in one that the program's lanes permit (`permitted_order`).
    """
    memory = StepMemory(program, inputs.token_ids, inputs.batch, inputs.draw_rows, inputs.adapters)
    listed = range(len(program.operators))
    for index in listed if choose is None else permitted_order(program.lanes, choose):
        operator = program.operators[index]
        arguments = [memory.read(name, operator.share) for name in operator.inputs]
        arguments += [device.weights[name] for name in operator.weights]
        outputs = _RUN[operator.kind](_Call(operator, device, memory, inputs.copies_out), *arguments)
        for name, values in zip(operator.outputs, _listed(outputs), strict=True):
            memory.write(name, operator.share, values)
    return memory.read(program.result, WHOLE)


@dataclass(frozen=True, slots=True)
class _Call:
    """What an operator may need beside its tensors."""

    operator: Operator
    device: ReferenceDevice
    memory: StepMemory
    copies_out: Sequence[BlockSwap]

    def number(self, name: str) -> int:
        return int(self.operator.attributes[name])

    @property
    def cache(self) -> torch.Tensor:
        assert self.operator.layer is not None
        return self.device.kv_caches[self.operator.layer]

    @property
    def batch(self) -> PagedBatch:
        return self.memory.batch(self.operator.share)

    @property
    def draw_rows(self) -> torch.Tensor:
        return self.memory.draw_rows(self.operator.share)


_Outputs = torch.Tensor | tuple[torch.Tensor, ...] | None
_Run = Callable[..., _Outputs]
"""Called with a `_Call`, then the inputs, then the weights."""


def _listed(outputs: _Outputs) -> tuple[torch.Tensor, ...]:
    if outputs is None:
        return ()
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _plain(kernel: Callable[..., torch.Tensor]) -> _Run:
    return lambda _call, *tensors: kernel(*tensors)


def _norm(kernel: Callable[..., torch.Tensor]) -> _Run:
    return lambda call, *tensors: kernel(*tensors, call.operator.attributes["epsilon"])


def _layer_norm(call: _Call, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    return operations.layer_norm(x, weight, bias, call.operator.attributes["epsilon"])


def _rope_angles(call: _Call, positions: torch.Tensor) -> torch.Tensor:
    return operations.rope_angles(positions, call.number("head_dim"), call.operator.attributes["theta"])


def _scaled_angles(call: _Call, positions: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    return operations.scaled_rope_angles(positions, factors, call.operator.attributes["theta"])


def _all_reduced(call: _Call, x: torch.Tensor) -> torch.Tensor:
    total = x.clone()
    call.device.group.all_reduce(total)
    return total


def _lora(call: _Call, x: torch.Tensor, out: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return operations.lora(x, out, a, b, call.memory.adapters(call.operator.outputs[0], call.operator.share))


def _send(call: _Call, *rows: torch.Tensor) -> None:
    q, k, v = (one.clone() for one in rows)  # the sender's buffers are written anew while the task waits
    layer, window = call.operator.layer, call.operator.attributes.get("window")
    assert layer is not None
    call.device.receiver.send(AttentionTask(layer, None if window is None else int(window), q, k, v, call.batch))


def _gather(call: _Call) -> torch.Tensor:
    assert call.operator.layer is not None
    return call.device.receiver.gather(call.operator.layer)


def _copy_out(call: _Call) -> None:
    layer, count = call.operator.layer, call.number("count")
    assert layer is not None
    first, end = (len(call.copies_out) * call.number(name) // count for name in ("first", "end"))
    for copy in call.copies_out[first:end]:
        call.device.host[layer][copy.host_block] = call.cache[copy.device_block]


_RUN: Mapping[OperatorKind, _Run] = {
    OperatorKind.EMBEDDING: _plain(operations.embedding),
    OperatorKind.SEGMENT_EMBEDDING: lambda call, ids, table: operations.segment_embedding(
        ids, table, call.batch, call.number("separator")
    ),
    OperatorKind.RMS_NORM: _norm(operations.rms_norm),
    OperatorKind.HEAD_NORM: _norm(operations.head_norm),
    OperatorKind.LAYER_NORM: _layer_norm,
    OperatorKind.LINEAR: _plain(operations.linear),
    OperatorKind.LINEAR_BIAS: _plain(operations.linear_bias),
    OperatorKind.LINEAR_ADD: _plain(operations.linear_add),
    OperatorKind.GATED_LINEAR: _plain(operations.gated_linear),
    OperatorKind.LORA: _lora,
    OperatorKind.ROPE_ANGLES: _rope_angles,
    OperatorKind.SCALED_ROPE_ANGLES: _scaled_angles,
    OperatorKind.ROPE: _plain(operations.rope),
    OperatorKind.WRITE_KV: lambda call, k, v: operations.write_kv(k, v, call.cache, call.batch),
    OperatorKind.ROPE_WRITE_KV: lambda call, q, k, v, angles: operations.rope_write_kv(
        q, k, v, angles, call.cache, call.batch
    ),
    OperatorKind.PAGED_ATTENTION: lambda call, q: operations.paged_attention(q, call.cache, call.batch),
    OperatorKind.WINDOW_ATTENTION: lambda call, q: operations.window_attention(
        q, call.cache, call.batch, call.number("window")
    ),
    OperatorKind.BIDIRECTIONAL_ATTENTION: lambda call, q: operations.bidirectional_attention(q, call.cache, call.batch),
    OperatorKind.BIDIRECTIONAL_WINDOW_ATTENTION: lambda call, q: operations.bidirectional_attention(
        q, call.cache, call.batch, call.number("window")
    ),
    OperatorKind.SILU_MUL: _plain(operations.silu_mul),
    OperatorKind.ERF_GELU_MUL: _plain(operations.erf_gelu_mul),
    OperatorKind.RELU: _plain(operations.relu),
    OperatorKind.GELU: _plain(operations.gelu),
    OperatorKind.ERF_GELU: _plain(operations.erf_gelu),
    OperatorKind.TANH: _plain(torch.tanh),
    OperatorKind.ROUTE: lambda call, x: operations.route(x, call.number("num_chosen")),
    OperatorKind.EXPERTS: _plain(operations.experts),
    OperatorKind.ADD: _plain(torch.add),
    OperatorKind.ADD_BIAS: _plain(operations.add_bias),
    OperatorKind.SELECT_DRAWS: lambda call, x: x[call.draw_rows],
    OperatorKind.SELECT_FIRST: lambda call, x: operations.select_first(x, call.batch, call.draw_rows),
    OperatorKind.MEAN_POOL: lambda call, x: operations.mean_pool(x, call.batch, call.draw_rows),
    OperatorKind.ALL_REDUCE: _all_reduced,
    OperatorKind.ALL_GATHER: lambda call, x: call.device.group.all_gather(x),
    OperatorKind.POLL: lambda call: call.device.poll(),
    OperatorKind.SEND: _send,
    OperatorKind.GATHER: _gather,
    OperatorKind.COPY_OUT: _copy_out,
}
