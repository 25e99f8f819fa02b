"""Passes by name, as people write them: ``tp=2,early-draws,fuse,split=4,polls``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

from gpu_node.graph.passes.draft import Pass
from gpu_node.graph.passes.early_draws import early_draws
from gpu_node.graph.passes.fuse import fuse
from gpu_node.graph.passes.offload.offload import offload
from gpu_node.graph.passes.offload.polls import insert_polls
from gpu_node.graph.passes.offload.split import even_plan, split_operators
from gpu_node.graph.passes.tensor_parallel import tensor_parallel
from gpu_node.graph.program import Program


class UnknownPassError(ValueError):
    """A pass that is not there, or a number that it cannot take; the text lists those there are."""


def parse_passes(text: str) -> list[Pass]:
    """The passes of a list with commas, in its order. `UnknownPassError`."""
    return [_parse(item.strip()) for item in text.split(",") if item.strip()]


def offload_passes(form: Literal["off", "on", "ahead"], *, polls: bool = True) -> tuple[Pass, ...]:
    """What a model's program needs for `EngineOptions.offload`, behind all else; without ``polls``, by the host."""
    behind = (insert_polls,) if polls else ()
    match form:
        case "off":
            return ()
        case "on":
            return offload, *behind
        case "ahead":
            return partial(offload, runs_ahead=True), *behind


def lane_passes(form: Literal["off", "on", "ahead"], *, polls: bool = True) -> tuple[Pass, ...]:
    """The same ahead of `nano_batches`: in lanes, parts run ahead of one another by themselves."""
    return offload_passes("off" if form == "off" else "on", polls=polls)


def _parse(item: str) -> Pass:
    name, equals, number = item.partition("=")
    if name in _PLAIN and not equals:
        return _PLAIN[name]
    if name in _NUMBERED and number.isdecimal() and 1 <= int(number) <= MAX_NUMBER:
        return _NUMBERED[name](int(number))
    known = ", ".join([*_PLAIN, *(f"{numbered}=N" for numbered in _NUMBERED)])
    raise UnknownPassError(f"{item!r} is no pass; there are {known}, with N from 1 to {MAX_NUMBER}")


def _split(num_parts: int) -> Pass:
    return lambda program: split_operators(program, even_plan(program, num_parts))


def _first_rank(world: int) -> Pass:
    """What the first of ``world`` devices runs."""
    return partial(tensor_parallel, rank=0, world=world)


MAX_NUMBER = 1024

_PLAIN: Mapping[str, Callable[[Program], Program]] = {
    "early-draws": early_draws,
    "fuse": fuse,
    "offload": offload,
    "offload-ahead": partial(offload, runs_ahead=True),
    "polls": insert_polls,
}
_NUMBERED: Mapping[str, Callable[[int], Pass]] = {"split": _split, "tp": _first_rank}
