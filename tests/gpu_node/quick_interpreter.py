"""Triton's interpreter, less what it does again and again to no end: half of its time. It computes what it computed.

At each launch, and at each call of a function by a kernel, it looks through all of its language for what to replace, of
which the names are always the same. At each addition of integers it computes also whether they overflow, and throws
that away, since only its ``debug`` would tell. And it makes its table of numpy's types each time that it reads it.
"""

from __future__ import annotations

import dataclasses
import inspect
from functools import cache
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

OWNERS = [tl, tl.core, tl.math, tl.tensor, tl.core.tensor_descriptor_base]
_slow_builtins = interpreter._patch_builtin
_slow_type = interpreter._get_np_dtype
_builtins: dict[Any, list[str]] = {}
"""Names by module or class of the language, of when no kernel runs: then none of them is replaced."""


def quicken() -> None:
    """From now on, in this process."""
    options = interpreter.interpreter_builder.options
    assert not options.debug, "whether integers overflow would be told"
    interpreter.interpreter_builder.options = dataclasses.replace(options, sanitize_overflow=False)
    for owner in OWNERS:
        _builtins[owner] = [name for name, member in inspect.getmembers(owner) if tl.core.is_builtin(member)]
    interpreter._patch_builtin = _patch_builtin
    interpreter._get_np_dtype = _numpy_type


def _patch_builtin(owner: Any, builder: Any, scope: Any) -> None:
    """What is replaced already is no builtin, as in the original."""
    for name in _builtins[owner]:
        member = getattr(owner, name)
        if tl.core.is_builtin(member):
            interpreter._patch_attr(owner, name, member, builder, scope)


def _numpy_type(kind: Any) -> np.dtype[Any]:
    element = kind.element_ty if isinstance(kind, tl.block_type) else kind
    return np.dtype(np.uint64) if isinstance(element, tl.pointer_type) else _scalar_type(element)


@cache
def _scalar_type(kind: Any) -> np.dtype[Any]:
    found: np.dtype[Any] = _slow_type(kind)
    return found
