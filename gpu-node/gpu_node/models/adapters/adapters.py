"""The adapters of a model, opened where it has any: without them their package is not needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gpu_node.graph.program import PRODUCTS, Program
from gpu_node.models.checkpoint import Checkpoint
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.files.model_file import AdapterFilesError, ModelFileError, checked_path

T = TypeVar("T")


class Adapters(Protocol):
    """All adapters of a model, in the order in which the configuration names them."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of each."""
        ...

    @property
    def ranks(self) -> Mapping[str, int]:
        """Of each weight that any of them changes, by canonical name, the largest."""
        ...

    def read(self, stack: str) -> Any:
        """A stack of matrices by its name (`gpu_node.graph.stack_names`): an array of float32."""
        ...


class _NoAdapters:
    names: tuple[str, ...] = ()
    ranks: Mapping[str, int] = {}

    def read(self, stack: str) -> Any:
        raise KeyError(stack)


NO_ADAPTERS: Adapters = _NoAdapters()


def open_adapters(spec: ModelSpec, checkpoint: Checkpoint, program: Program) -> Adapters:
    """The adapters of a model, with the plain ``program`` of it; `AdapterFilesError` says all that cannot be used."""
    if not spec.adapters:
        return NO_ADAPTERS
    from gpu_node.models.adapters.adapter_file import AdapterFile  # their packages only where there are adapters
    from gpu_node.models.adapters.adapter_stacks import AdapterStacks

    shapes = adaptable(program)
    return AdapterStacks(
        opened_adapters(spec, lambda one, path: AdapterFile(one.name, path, checkpoint.config, shapes))
    )


def opened_adapters(spec: ModelSpec, opened: Callable[[AdapterSpec, Path], T]) -> list[T]:
    """What ``opened`` makes of each of a model's adapters and its directory, in their order.

    `AdapterFilesError` says all that cannot be used, a line each.
    """
    found: list[T] = []
    problems = {}
    for one in spec.adapters:
        try:
            path = checked_path(one)
        except ModelFileError as error:  # which names it
            problems[one.name] = str(error)
            continue
        try:
            found.append(opened(one, path))
        except ModelFileError as error:
            problems[one.name] = f"adapter {one.name!r}: {error}"
    if problems:
        raise AdapterFilesError(problems)
    return found


def adaptable(program: Program) -> dict[str, tuple[int, ...]]:
    """Shapes of the weights that an adapter can change, by canonical name: products in layers, routers left out."""
    products = (operator.weights[0] for operator in program.operators if operator.kind in PRODUCTS)
    shapes = {weight.name: weight.shape for weight in program.weights}
    return {name: shapes[name] for name in products if name.startswith("layers.") and not name.endswith(".router")}
