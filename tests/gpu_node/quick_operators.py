"""Operators of Triton's language between values whose types its interpreter has seen before.

The first time the original answers, and what it answers tells the type of the result. What it did with the numbers is
an operation of numpy: where that gives the same bytes, it alone is done from then on, else always the original. Types
are told apart by their identity: `quick_interpreter` makes each of them once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

Array = np.ndarray[Any, Any]
Word = Callable[..., Any]
Operation = Callable[[Array, Any], Array]

Handle, Value, Constant = interpreter.TensorHandle, tl.core.tensor, tl.core.constexpr
SCALAR = tl.core.tuple([]), Constant(1)
"""The shape of a single number, and how many numbers it is."""
MEANING = interpreter.interpreter_semantic
slow_number = interpreter.TritonSemantic.to_tensor
_INTEGERS = (tl.int8, tl.uint8, tl.int16, tl.uint16, tl.int32, tl.uint32, tl.int64, tl.uint64)
COMPUTED = frozenset((tl.int1, *_INTEGERS, tl.float32, tl.float64))
"""Types with which numpy computes as the interpreter does; with others it does more."""


class Way(NamedTuple):
    """What becomes of a word for values of some types."""

    operation: Operation | None
    """None: only the original knows."""
    kind: Any
    """Of the result."""
    scalar: Any
    """What the numbers of the result are said to be: of a comparison, what was compared."""
    known: tuple[object, ...]
    """Types of the operands: while these are here, nothing else has their identity."""


def made(data: Array, kind: Any, scalar: Any) -> Any:
    """A value of the language."""
    handle = Handle.__new__(Handle)
    handle.data, handle.dtype, handle.attr = data, scalar, {}
    value = Value.__new__(Value)
    value.handle, value.type, value.dtype = handle, kind, kind.scalar
    value.shape, value.numel = kind.quick_shape if kind.is_block() else SCALAR
    return value


def _is_same(one: Array, other: Array) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def operator(operation: Operation, between: Callable[..., Operation | None], slow: Word) -> Word:
    """Of a value and another one or a number; ``between`` tells what the interpreter does with their numbers."""
    ways: dict[tuple[object, ...], Way] = {}

    def learn(key: tuple[object, ...], value: Any, other: Any, right: Any) -> Any:
        result = slow(value, other)
        found = between(operation, value, other)
        if found is not None and not _is_same(found(value.handle.data, right), result.handle.data):
            found = None
        ways[key] = Way(found, result.type, result.handle.dtype, (value.type, getattr(other, "type", None)))
        return result

    def call(value: Any, other: Any, _semantic: Any = None) -> Any:
        kind = type(other)
        if kind is Value:
            key: tuple[object, ...] = id(value.type), id(other.type)
            right = other.handle.data
        else:
            if kind is Constant:
                other = other.value
                kind = type(other)
            if kind is not int and kind is not float:
                return slow(value, other)
            key = id(value.type), kind, other
            right = None
        way = ways.get(key)
        if way is None:
            return learn(key, value, other, right)
        if way.operation is None:
            return slow(value, other)
        return made(way.operation(value.handle.data, right), way.kind, way.scalar)

    return call


def _arithmetic(operation: Operation, value: Any, other: Any) -> Operation | None:
    """A number takes the type of the value beside it."""
    if type(other) is Value:
        return _values(operation, value, other)
    number = slow_number(MEANING, other)
    if value.dtype.is_ptr():
        return _fixed(_values(operation, value, number), number)
    kind = value.dtype
    if kind not in COMPUTED or kind is tl.int1 or (number.dtype.is_floating() and not kind.is_floating()):
        return None
    return _fixed(operation, MEANING.cast(number, value.dtype))


def _comparison(operation: Operation, value: Any, other: Any) -> Operation | None:
    """A number has a type of its own."""
    number = slow_number(MEANING, other)
    found = _values(operation, value, number)
    return found if number is other else _fixed(found, number)


def _values(operation: Operation, value: Any, other: Any) -> Operation | None:
    left, right = value.dtype, other.dtype
    if left.is_ptr():
        if operation is not np.add or right not in _INTEGERS or (right.is_int_unsigned() and right.int_bitwidth < 64):
            return None
        size = max(1, value.handle.get_element_ty().primitive_bitwidth // 8)
        return lambda pointers, offsets: pointers + size * offsets.astype(np.uint64)
    if right.is_ptr() or not {left, right} <= COMPUTED:
        return None
    if left is right:
        return operation
    both = interpreter._get_np_dtype(MEANING.computation_type_impl(left, False, right, False, False))
    return lambda one, another: operation(one.astype(both), another.astype(both))


def _fixed(operation: Operation | None, number: Any) -> Operation | None:
    if operation is None:
        return None
    right = number.handle.data
    right.flags.writeable = False
    return lambda left, _: operation(left, right)


def _quotient(operation: Operation, value: Any, other: Any) -> Operation | None:
    """Of numbers of one floating type."""
    is_alike = type(other) is not Value or other.dtype is value.dtype
    return _arithmetic(operation, value, other) if value.dtype.is_floating() and is_alike else None


def _whole_quotient(operation: Operation, value: Any, other: Any) -> Operation | None:
    return _arithmetic(operation, value, other) if value.dtype.is_int() else None


def _divided(left: Array, right: Array) -> Array:
    """Rounded towards zero."""
    quotient: Array = (left - np.fmod(left, right)) // right
    return quotient


def _subtracted_from(left: Array, right: Array) -> Array:
    return np.subtract(right, left)


OPERATORS: tuple[tuple[str, Any, Callable[..., Operation | None]], ...] = (
    ("add", np.add, _arithmetic),
    ("radd", np.add, _arithmetic),
    ("sub", np.subtract, _arithmetic),
    ("rsub", _subtracted_from, _arithmetic),
    ("mul", np.multiply, _arithmetic),
    ("rmul", np.multiply, _arithmetic),
    ("truediv", np.divide, _quotient),
    ("floordiv", _divided, _whole_quotient),
    ("mod", np.fmod, _whole_quotient),
    ("and", np.bitwise_and, _arithmetic),
    ("or", np.bitwise_or, _arithmetic),
    ("xor", np.bitwise_xor, _arithmetic),
    ("lt", np.less, _comparison),
    ("le", np.less_equal, _comparison),
    ("gt", np.greater, _comparison),
    ("ge", np.greater_equal, _comparison),
    ("eq", np.equal, _comparison),
    ("ne", np.not_equal, _comparison),
)
"""By name, without underscores: what numpy does, and how the interpreter gets there."""
