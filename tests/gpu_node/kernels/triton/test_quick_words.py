"""Words that know their way say what the original says, of numbers that they have not seen too."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
import triton.language as tl
from triton.language.semantic import IncompatibleTypeErrorImpl
from triton.runtime import interpreter

from tests.gpu_node import quick_words

pytestmark = pytest.mark.usefixtures("signed")

Value = tl.core.tensor
OPERATORS = [name for name in vars(Value) if getattr(Value, name) in quick_words.QUICK]
KINDS = (tl.float32, tl.float16, tl.bfloat16, tl.int32, tl.int64, tl.uint32, tl.int1, tl.pointer_type(tl.int16))
SIZES: tuple[tuple[int, ...], ...] = ((), (2, 4))
NUMBERS = (0, 1, 1.0, 2.5, -1, math.inf, True, 1e300, 2**31)


def value(kind: Any, sizes: tuple[int, ...], seed: int) -> Any:
    """Of small numbers, none of them 0."""
    numbers = np.random.default_rng(seed).integers(1, 9, sizes or (1,))
    whole = numbers.astype(interpreter._get_np_dtype(kind))
    return Value(interpreter.TensorHandle(whole, kind), tl.block_type(kind, list(sizes)) if sizes else kind)


def original(word: Any) -> Callable[..., Any]:
    return lambda *values, **options: word(*values, **options, _semantic=interpreter.interpreter_semantic)


def told(word: Callable[..., Any], *values: Any, **options: Any) -> tuple[Any, ...]:
    try:
        result = word(*values, **options)
    except (AssertionError, AttributeError, IncompatibleTypeErrorImpl, RuntimeWarning, TypeError, ValueError) as error:
        return type(error), str(error)
    numbers = result.handle.data
    kinds = str(result.type), str(result.dtype), str(result.handle.dtype), str(result.shape), result.numel.value
    return kinds, numbers.dtype, np.shape(numbers), numbers.tobytes()


@pytest.mark.parametrize("name", sorted({*OPERATORS} - {"__getitem__", "to"}))
def test_operators_give_the_same_bytes(name: str) -> None:
    word = original(getattr(Value, name))
    quick = quick_words.QUICK[getattr(Value, name)](word)
    num_known = 0
    for kind, sizes in product(KINDS, SIZES):
        pairs = product(KINDS, {(), sizes, (4,)})
        others = [*NUMBERS, tl.constexpr(2.5), *(partial(value, other, its) for other, its in pairs)]
        for other in others:
            for seed in range(2):
                one, another = value(kind, sizes, seed), other(seed + 10) if type(other) is partial else other
                wanted = told(word, one, another)
                assert told(quick, one, another) == wanted, (str(one.type), str(another))
                num_known += type(wanted[0]) is tuple
    assert num_known > 100


def test_indices_and_conversions_too() -> None:
    index, convert = (original(getattr(Value, name)) for name in ("__getitem__", "to"))
    quick_index, quick_convert = (quick_words.QUICK[getattr(Value, name)] for name in ("__getitem__", "to"))
    indexed, converted = quick_index(index), quick_convert(convert)
    everything = slice(None)
    indices = (None, (None,), (everything, None), (None, everything), (None, everything, everything), (slice(1, 2),))
    for kind, sizes, seed in product(KINDS, SIZES, range(3)):
        one = value(kind, sizes, seed)
        for at in indices:
            assert told(indexed, one, at) == told(index, one, at)
        for other in (*KINDS, tl.float64, tl.constexpr(tl.int32)):
            assert told(converted, one, other) == told(convert, one, other)
        assert told(converted, one, tl.int32, bitcast=True) == told(convert, one, tl.int32, bitcast=True)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_loads_are_of_what_is_there_each_time(kind: torch.dtype) -> None:
    load = original(tl.load)
    quick = quick_words.QUICK[tl.load](load)
    memory = torch.arange(1, 17).to(kind)
    first = interpreter._implicit_cvt(memory)
    add = original(Value.__add__)
    for seed, sizes in product(range(3), ((4,), (2, 4))):
        memory.copy_(memory.roll(1))
        pointers = add(first, value(tl.int32, sizes, seed))
        mask = original(Value.__gt__)(value(tl.int32, sizes, seed), 4)
        row = original(Value.__gt__)(value(tl.int32, (4,), seed), 4)
        for options in ({}, {"mask": mask}, {"mask": row}, {"mask": mask, "other": 2}, {"mask": mask, "other": 0.5}):
            assert told(quick, pointers, **options) == told(load, pointers, **options)
        assert told(quick, first) == told(load, first)
        assert told(quick, pointers, other=1) == told(load, pointers, other=1)
        assert told(quick, pointers, volatile=True) == told(load, pointers, volatile=True)
        assert told(quick, value(tl.int32, sizes, seed)) == told(load, value(tl.int32, sizes, seed))


def test_what_several_values_share_cannot_be_written() -> None:
    numbered = quick_words.QUICK[tl.arange](original(tl.arange))
    for _ in range(2):
        one, other = numbered(tl.constexpr(0), tl.constexpr(4)), numbered(0, 4)
        assert one is not other
        assert one.handle.data.tolist() == other.handle.data.tolist() == [0, 1, 2, 3]
        with pytest.raises(ValueError, match="read-only"):
            one.handle.data[0] = 1
