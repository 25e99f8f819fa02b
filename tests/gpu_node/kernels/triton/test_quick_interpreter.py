"""What makes Triton's interpreter quicker changes nothing of what it does."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

from tests.gpu_node import quick_interpreter


class Noted:
    """Stands for a scope: who sets what, and no language is changed."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def set_attr(self, owner: Any, name: str, value: object) -> None:
        self.names.append(name)


@pytest.mark.parametrize("owner", quick_interpreter.OWNERS)
def test_it_replaces_what_the_original_replaces(owner: Any) -> None:
    original, quick = Noted(), Noted()
    quick_interpreter._slow_builtins(owner, interpreter.interpreter_builder, original)
    quick_interpreter._patch_builtin(owner, interpreter.interpreter_builder, quick)
    assert quick.names == original.names


def test_types_are_those_of_the_original() -> None:
    kinds = [kind for _, kind in inspect.getmembers(tl.core, lambda member: type(member) is tl.core.dtype)]
    known = [kind for kind in kinds if kind != tl.void]
    assert len(known) > 15
    for kind in known:
        assert quick_interpreter._numpy_type(kind) == quick_interpreter._slow_type(kind)
        block = tl.core.block_type(kind, [16])
        assert quick_interpreter._numpy_type(block) == quick_interpreter._slow_type(block)
    pointer = tl.core.pointer_type(tl.float32)
    assert quick_interpreter._numpy_type(pointer) == quick_interpreter._slow_type(pointer)


@pytest.mark.parametrize("sizes", [[16], [4, 8], [1], [2, 1, 32]])
def test_shapes_are_those_of_the_original(sizes: list[int]) -> None:
    kinds = []
    for make_block, make_value in (
        (quick_interpreter._slow_block, quick_interpreter._slow_value),
        (quick_interpreter._make_block, quick_interpreter._make_value),
    ):
        for element in (tl.float32, tl.int64):
            for shape in (sizes, tl.core.tuple([tl.constexpr(size) for size in sizes])):
                kind = object.__new__(tl.core.block_type)
                make_block(kind, element, shape)
                value = object.__new__(tl.tensor)
                make_value(value, "handle", kind)
                told = [str(kind), kind.numel, kind.shape.values, kind.scalar, value.handle, value.dtype, str(value)]
                kinds.append((told, [size.value for size in value.shape.values], value.numel.value, value.type is kind))
    assert kinds[:4] == kinds[4:]


@pytest.mark.parametrize("sizes", [[3], [4, 6], []])
def test_what_is_no_shape_is_none(sizes: list[Any]) -> None:
    refused = []
    for make in (quick_interpreter._slow_block, quick_interpreter._make_block):
        with pytest.raises((TypeError, ValueError)) as error:
            make(object.__new__(tl.core.block_type), tl.float32, sizes)
        refused.append((error.type, str(error.value)))
    assert refused[0] == refused[1]


KINDS = (tl.float32, tl.float16, tl.bfloat16, tl.int32, tl.int64, tl.uint32, tl.int1)


def value(kind: Any, sizes: list[int]) -> Any:
    numbers = np.ones(sizes, dtype=quick_interpreter._numpy_type(kind))
    return tl.tensor(interpreter.TensorHandle(numbers, kind), tl.block_type(kind, sizes) if sizes else kind)


def told(operands: Callable[..., Any], lhs: Any, rhs: Any, *, div_or_mod: bool) -> object:
    try:
        pair = operands(interpreter.interpreter_semantic, lhs, rhs, div_or_mod=div_or_mod)
    except (AttributeError, RuntimeWarning, TypeError, ValueError) as error:
        return type(error), str(error)
    return [(str(one.type), one.dtype, one.handle.data.dtype, one.handle.data.tolist()) for one in pair]


@pytest.mark.usefixtures("signed")
@pytest.mark.parametrize("sizes", [[], [4], [2, 4]], ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_operands_are_made_alike_as_the_original_does(kind: Any, sizes: list[int]) -> None:
    ours, theirs = quick_interpreter._operands, quick_interpreter._slow_operands
    numbers = (0, 1, 1.0, -1, 2.5, True, -0.0, float("inf"), 1e300, 2**31, 2**40)
    others = (*numbers, value(kind, sizes), value(kind, []), *(value(other, sizes) for other in KINDS))
    for other in others:
        for div_or_mod in (False, True):
            for _ in range(2):  # the second time it is known
                one = value(kind, sizes)
                assert told(ours, one, other, div_or_mod=div_or_mod) == told(theirs, one, other, div_or_mod=div_or_mod)
                assert told(ours, other, one, div_or_mod=div_or_mod) == told(theirs, other, one, div_or_mod=div_or_mod)


@pytest.mark.usefixtures("signed")
def test_a_constant_that_is_known_cannot_be_written() -> None:
    _, constant = quick_interpreter._operands(interpreter.interpreter_semantic, value(tl.float32, [4]), 3.0)
    with pytest.raises(ValueError, match="read-only"):
        constant.handle.data[0] = 1.0


@pytest.mark.usefixtures("signed")
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_casts_are_those_of_the_original(kind: Any) -> None:
    one = value(kind, [4])
    for other in KINDS:
        found, expected = (
            cast(interpreter.interpreter_semantic, one, other)
            for cast in (quick_interpreter._cast, quick_interpreter._slow_cast)
        )
        assert (str(found.type), found.handle.data.tolist()) == (str(expected.type), expected.handle.data.tolist())


@triton.jit  # type: ignore[untyped-decorator] # a package without types
def doubled(x: tl.tensor) -> tl.tensor:
    return tl.where(x > 0, x * 2, x)


@triton.jit  # type: ignore[untyped-decorator] # a package without types
def sums(x: tl.tensor, out: tl.tensor, size: tl.constexpr) -> None:
    values = tl.load(x + tl.arange(0, size))
    columns = values[:, None] + tl.zeros((size, 2), tl.float32)
    tl.store(out + tl.arange(0, 2), tl.sum(doubled(columns), axis=0))


def test_functions_of_a_kernel_see_the_language_replaced_and_nobody_behind_it() -> None:
    names = {name: getattr(tl, name) for name in ("arange", "load", "range")}
    for _ in range(2):
        out = torch.zeros(2)
        sums[(1,)](torch.tensor([-1.0, 2.0, 3.0, -4.0]), out, size=4)
        assert out.tolist() == [5.0, 5.0]
        assert {name: getattr(tl, name) for name in names} == names
