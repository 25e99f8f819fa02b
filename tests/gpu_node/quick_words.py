"""Words of Triton's language that know their way through its interpreter when they see types for the second time.

As operators do (`quick_operators`): the original answers first. Words that the language itself calls are told
``_semantic``, as its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from tests.gpu_node.quick_operators import (
    COMPUTED,
    MEANING,
    OPERATORS,
    Array,
    Constant,
    Value,
    Way,
    Word,
    made,
    operator,
    slow_number,
)

_load = interpreter._interpreter.load
_EVERYTHING = slice(None)


def _indexed(slow: Word) -> Word:
    """``value[:, None]`` and the like."""
    ways: dict[tuple[object, ...], tuple[Any, tuple[int, ...]]] = {}

    def call(value: Any, slices: Any, _semantic: Any = None) -> Any:
        if type(slices) is not tuple or any(one is not None and one != _EVERYTHING for one in slices):
            return slow(value, slices)
        key = id(value.type), *[one is None for one in slices]
        if key not in ways:
            result = slow(value, slices)
            if type(value.handle.data) is np.ndarray and value.type.is_block():
                ways[key] = result.type, result.handle.data.shape
            return result
        kind, sizes = ways[key]
        return made(value.handle.data.reshape(sizes), kind, value.handle.dtype.scalar)

    return call


def _converted(slow: Word) -> Word:
    """``value.to(type)`` where numpy's conversion is the interpreter's."""
    ways: dict[tuple[int, int], Way] = {}

    def call(value: Any, dtype: Any, *rounding: Any, _semantic: Any = None, **more: Any) -> Any:
        if type(dtype) is Constant:
            dtype = dtype.value
        if rounding or more or type(dtype) is not tl.core.dtype:
            return slow(value, dtype, *rounding, **more)
        if value.dtype is dtype:
            return value
        key = id(value.type), id(dtype)
        way = ways.get(key)
        if way is None:
            result = slow(value, dtype)
            found = None
            if not value.dtype.is_ptr() and {value.dtype, dtype} <= COMPUTED and dtype != tl.int1:
                found = partial(_as_type, interpreter._get_np_dtype(dtype))
            ways[key] = Way(found, result.type, result.handle.dtype, (value.type, dtype))
            return result
        if way.operation is None:
            return slow(value, dtype)
        return made(way.operation(value.handle.data, None), way.kind, way.scalar)

    return call


def _as_type(kind: np.dtype[Any], numbers: Array, _: None) -> Array:
    return numbers.astype(kind)


class _Memory(NamedTuple):
    """What is known of a load."""

    sizes: tuple[int, ...]
    everywhere: Array
    """The mask of a load without one."""
    elsewhere: Array
    """What is loaded where a mask forbids it."""
    numbers: np.dtype[Any]
    kind: Any
    scalar: Any
    known: tuple[object, ...]


def _loaded(slow: Word) -> Word:
    """Without a mask, or with one and a number where it forbids."""
    ways: dict[tuple[object, ...], _Memory | None] = {}

    def learn(key: tuple[object, ...], pointer: Any, mask: Any, other: Any) -> Any:
        result = slow(pointer, mask, other)
        kind, sizes = pointer.dtype.element_ty, pointer.handle.data.shape
        ways[key] = None
        if type(kind) is tl.core.dtype and kind != tl.int1 and result.handle.data.shape == sizes:
            filling = MEANING.cast(slow_number(MEANING, 0 if other is None else other), kind).handle.data
            numbers = interpreter._get_np_dtype(kind)
            elsewhere = np.full(sizes, filling, dtype=numbers)
            known = pointer.type, getattr(mask, "type", None)
            everywhere = np.ones(sizes, dtype=bool)
            for array in (elsewhere, everywhere):
                array.flags.writeable = False
            ways[key] = _Memory(sizes, everywhere, elsewhere, numbers, result.type, result.handle.dtype, known)
        return result

    def call(
        pointer: Any, mask: Any = None, other: Any = None, *more: Any, _semantic: Any = None, **options: Any
    ) -> Any:
        if type(other) is Constant:
            other = other.value
        if more or options or type(pointer) is not Value or type(other) not in (int, float, type(None)):
            return slow(pointer, mask, other, *more, **options)
        if mask is not None and (type(mask) is not Value or mask.dtype is not tl.int1):
            return slow(pointer, mask, other)
        key = id(pointer.type), id(mask if mask is None else mask.type), type(other), other
        if key not in ways:
            return learn(key, pointer, mask, other)
        way = ways[key]
        at = pointer.handle.data
        if way is None or at.shape != way.sizes:
            return slow(pointer, mask, other)
        allowed = way.everywhere if mask is None else mask.handle.data
        if allowed.shape != way.sizes:
            allowed = np.broadcast_to(allowed, way.sizes)
        return made(_load(at, allowed, way.elsewhere, way.numbers), way.kind, way.scalar)

    return call


def _numbered(slow: Word) -> Word:
    """``arange``, which nobody can write."""

    @cache
    def known(start: int, end: int) -> Any:
        value = slow(start, end)
        value.handle.data.flags.writeable = False
        return value

    def call(start: Any, end: Any, _semantic: Any = None) -> Any:
        value = known(*(one.value if type(one) is Constant else one for one in (start, end)))
        return made(value.handle.data, value.type, value.handle.dtype)

    return call


def number(self: Any, value: Any, check_type: bool = True) -> Any:
    """What is assigned to a name, as a value."""
    return value if type(value) is Value else slow_number(self, value, check_type)


QUICK: dict[Any, Callable[[Word], Word]] = {
    **{getattr(Value, f"__{name}__"): partial(operator, numpy_s, how) for name, numpy_s, how in OPERATORS},
    Value.__getitem__: _indexed,
    Value.to: _converted,
    tl.core.load: _loaded,
    tl.core.arange: _numbered,
}
"""By a word of the language, what makes it quick."""
