"""What makes Triton's interpreter quicker changes nothing of what it does."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
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
