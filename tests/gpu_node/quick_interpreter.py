"""Triton's interpreter, less what it does again and again to no end: most of its time. It computes what it computed.

At each launch it looks through all of its language for what to replace, of which the names are always the same, and at
each call of a function by a kernel once more, when all of it is replaced. At each addition of integers it computes also
whether they overflow, and throws that away, since only its ``debug`` would tell. It makes its table of numpy's types
each time that it reads it. Each value has objects of its own for its shape, of which there are some dozens. Of two
values of one type it asks at length which type they have together, and each constant is made anew for each operation.
And each word of the language is called through three functions, and goes a long way each time (`quick_words`).
"""

from __future__ import annotations

import dataclasses
import inspect
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from tests.gpu_node import quick_words
from tests.gpu_node.quick_operators import SCALAR

OWNERS = [tl, tl.core, tl.math, tl.tensor, tl.core.tensor_descriptor_base]
_slow_builtins = interpreter._patch_builtin
_slow_language = interpreter._patch_lang
_slow_type = interpreter._get_np_dtype
_slow_block = tl.core.block_type.__init__
_slow_pointer = tl.core.pointer_type.__init__
_slow_value = tl.core.tensor.__init__
_slow_equal = tl.core.tuple.__eq__
_slow_unwrap = tl.core._unwrap_if_constexpr
_slow_broadcast = interpreter.TritonSemantic.broadcast_impl_value
_slow_operands = interpreter.TritonSemantic.binary_op_type_checking_impl
_slow_cast = interpreter.TritonSemantic.cast
_builtin_code = tl.core.builtin(lambda: None).__code__
_builtins: dict[Any, list[str]] = {}
"""Names by module or class of the language, of when no kernel runs: then none of them is replaced."""
_seen: dict[int, frozenset[Any]] = {}
"""Modules of the language that functions see, by the id of their globals."""
_replaced: set[Any] = set()
"""Those that are replaced for the kernel that runs."""
_left: set[Any] = set()
"""Those that a function of a kernel replaced and its kernel did not: the original never puts them back."""


def quicken() -> None:
    """From now on, in this process."""
    options = interpreter.interpreter_builder.options
    assert not options.debug, "whether integers overflow would be told"
    interpreter.interpreter_builder.options = dataclasses.replace(options, sanitize_overflow=False)
    for owner in OWNERS:
        _builtins[owner] = [name for name, member in inspect.getmembers(owner) if tl.core.is_builtin(member)]
    interpreter._patch_builtin = _patch_builtin
    interpreter._patch_lang = _patch_language
    interpreter._get_np_dtype = _numpy_type
    tl.core.block_type.__new__ = staticmethod(_block)
    tl.core.block_type.__init__ = _nothing_more
    tl.core.pointer_type.__new__ = staticmethod(_pointer)
    tl.core.pointer_type.__init__ = _nothing_more
    tl.core.tensor.__init__ = _make_value
    tl.core.tuple.__eq__ = _equal
    tl.core._unwrap_if_constexpr = _unwrap
    interpreter.TritonSemantic.broadcast_impl_value = _broadcast
    interpreter.TritonSemantic.binary_op_type_checking_impl = _operands
    interpreter.TritonSemantic.cast = _cast
    interpreter.TritonSemantic.to_tensor = quick_words.number


class _Replaced(interpreter._LangPatchScope):  # type: ignore[misc] # a package without types
    """What is replaced until the kernel has ended."""

    def restore(self) -> None:
        super().restore()
        _replaced.clear()


def _patch_language(function: Any) -> Any:
    """For a kernel, or for what it calls: that sees the language as it is replaced already."""
    names = function.__globals__
    if id(names) not in _seen:
        _seen[id(names)] = frozenset(value for value in names.values() if value is tl or value is tl.core)
    seen = _seen[id(names)]
    if not _replaced:
        scope = _Replaced()
        scope._changes = _slow_language(function)._changes
        _replaced.update(seen)
        return scope
    if not seen <= _replaced | _left:
        _slow_language(function)
        _left.update(seen - _replaced)
    return interpreter._LangPatchScope()


def _patch_builtin(owner: Any, builder: Any, scope: Any) -> None:
    """What is replaced already is no builtin, as in the original."""
    for name in _builtins[owner]:
        member = getattr(owner, name)
        if tl.core.is_builtin(member):
            scope.set_attr(owner, name, _meant(member))


@cache
def _meant(member: Any) -> Any:
    """What a kernel calls by a word of the language: the function itself, told the interpreter's meaning of it."""
    called = member.__wrapped__ if getattr(member, "__code__", None) is _builtin_code else member
    semantic = interpreter.interpreter_semantic

    def call(*values: Any, **options: Any) -> Any:
        options["_semantic"] = semantic
        return called(*values, **options)

    return quick_words.QUICK[member](call) if member in quick_words.QUICK else call


def _numpy_type(kind: Any) -> np.dtype[Any]:
    element = kind.element_ty if isinstance(kind, tl.block_type) else kind
    return np.dtype(np.uint64) if isinstance(element, tl.pointer_type) else _scalar_type(element)


@cache
def _scalar_type(kind: Any) -> np.dtype[Any]:
    found: np.dtype[Any] = _slow_type(kind)
    return found


class _Shape(NamedTuple):
    """What the language knows of a shape, in its own words."""

    block: tuple[Any, int, str]
    """Of a type: the sizes, how many numbers they make, and as a text."""
    value: tuple[Any, Any]
    """Of a value: the sizes, and how many numbers."""


@cache
def _shape(sizes: tuple[int, ...]) -> _Shape:
    kind = object.__new__(tl.core.block_type)
    _slow_block(kind, tl.int1, list(sizes))
    value = object.__new__(tl.core.tensor)
    _slow_value(value, None, kind)
    return _Shape((kind.shape, kind.numel, str(kind.shape)), (value.shape, value.numel))


_types: dict[tuple[object, ...], Any] = {}
"""Blocks by what they are of and their sizes, pointers by what they point to and how: each is made once."""


def _block(cls: Any, element_ty: Any, shape: Any) -> Any:
    sizes = tuple(map(_unwrap, shape)) if isinstance(shape, (list, tl.core.tuple)) else None
    if (made := _types.get((id(element_ty), sizes))) is None:
        made = object.__new__(cls)
        _make_block(made, element_ty, shape)
        _types[id(element_ty), sizes] = made
    return made


def _pointer(cls: Any, element_ty: Any, address_space: int = 1, const: bool = False) -> Any:
    element_ty = _unwrap(element_ty)
    key = (id(element_ty), address_space, const)
    if (made := _types.get(key)) is None:
        made = object.__new__(cls)
        _slow_pointer(made, element_ty, address_space, const)
        _types[key] = made
    return made


def _nothing_more(self: Any, *_: Any, **__: Any) -> None:
    """It was made whole."""


def _make_block(self: Any, element_ty: Any, shape: Any) -> None:
    assert isinstance(shape, (list, tl.core.tuple))
    known = _shape(tuple([_unwrap(size) for size in shape]))
    self.element_ty, (self.shape, self.numel, text) = element_ty, known.block
    self.name = f"<{text}, {element_ty}>"
    self.quick_shape = known.value


def _make_value(self: Any, handle: Any, kind: Any) -> None:
    self.handle, self.type, self.dtype = handle, kind, kind.scalar
    self.shape, self.numel = kind.quick_shape if kind.is_block() else SCALAR


def _equal(self: Any, other: Any) -> Any:
    return tl.core.constexpr(True) if self is other else _slow_equal(self, other)


def _broadcast(self: Any, lhs: Any, rhs: Any) -> Any:
    left, right = lhs.type, rhs.type
    is_block = left.is_block()
    if is_block == right.is_block() and (not is_block or left.shape is right.shape):
        return lhs, rhs  # of one shape already
    return _slow_broadcast(self, lhs, rhs)


def _operands(
    self: Any,
    lhs: Any,
    rhs: Any,
    allow_lhs_ptr: bool = False,
    allow_rhs_ptr: bool = False,
    arithmetic_check: bool = True,
    div_or_mod: bool = False,
) -> Any:
    """Both as values of one type and shape."""
    value, other = (lhs, rhs) if type(lhs) is tl.core.tensor else (rhs, lhs)
    kind = value.dtype if type(value) is tl.core.tensor else None
    if type(kind) is tl.core.dtype and not (div_or_mod and kind in _DIVIDED_WIDER):
        if type(other) is tl.core.tensor and other.dtype is kind:
            return self.broadcast_impl_value(lhs, rhs)
        if arithmetic_check and type(other) in (int, float):
            known = _constant(other, type(other) is int, kind, value.handle.data.shape, value.type.is_block())
            if known is not None:
                constant = tl.core.tensor(known.handle, known.type)
                return (value, constant) if value is lhs else (constant, value)
    return _slow_operands(self, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)


_DIVIDED_WIDER = (tl.float16, tl.bfloat16)


@cache
def _constant(number: float, _is_int: bool, kind: Any, sizes: tuple[int, ...], is_block: bool) -> Any:
    """What the original makes of a number beside a value, and nobody can write; None where it changes the value too."""
    zeros = interpreter.TensorHandle(np.zeros(sizes, dtype=_scalar_type(kind)), kind)
    beside = tl.core.tensor(zeros, tl.core.block_type(kind, list(sizes)) if is_block else kind)
    value, constant = _slow_operands(interpreter.interpreter_semantic, beside, number)
    constant.handle.data.flags.writeable = False
    return constant if value is beside else None


def _cast(self: Any, value: Any, kind: Any, fp_downcast_rounding: str | None = None) -> Any:
    if value.dtype is kind.scalar:
        return value
    return _slow_cast(self, value, kind, fp_downcast_rounding)


def _unwrap(value: Any) -> Any:
    kind = type(value)
    if kind is tl.core.constexpr:
        return value.value
    return value if kind is int else _slow_unwrap(value)
