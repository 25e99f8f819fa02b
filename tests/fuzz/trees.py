"""Documents (JSON, MessagePack) changed as documents, so that what comes out still parses and gets further inside."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.contract.other_side import pack, unpack
from tests.fuzz.mutators import MAX_BYTES, mutated_bytes, nest

BYTES_SHARE = 0.35
"""Of inputs that are changed as bytes instead."""
NEST_SHARE = 0.01

NUMBERS = [0, 1, -1, 2, 3, 7, 127, 128, 255, 65_536, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40]
NUMBERS += [1 << 62, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1]
FLOATS = [0.0, -0.0, 0.5, -1.5, 1e-320, 1e308, -1e308, 1e30, float("inf"), float("-inf"), float("nan")]
TEXTS = ["", " ", "a", "\x00", "é", "\U000f0000", "\U0010ffff", "$.", "-", "00-0-0-0", "null", "1", "-1", "<s>", "▁"]
HUGE = [10**30, -(10**30), 10**400]
"""JSON has integers of any size."""
SURROGATES = ["\ud800", "a\udfff"]
"""JSON can escape what is no character."""

Edit = Callable[[Any, Random], Any]


def json_mutator(data: bytes, corpus: Sequence[bytes], rng: Random) -> bytes:
    """A neighbour of a JSON document."""
    return _mutated(data, corpus, rng, _load_json, lambda tree: json.dumps(tree).encode(), JSON_VALUES)


def msgpack_mutator(data: bytes, corpus: Sequence[bytes], rng: Random) -> bytes:
    """A neighbour of a MessagePack document."""
    return _mutated(data, corpus, rng, unpack, pack, MSGPACK_VALUES)


def mutated_tree(tree: Any, rng: Random, values: Sequence[Any]) -> Any:
    """A document of which one or a few places are changed."""
    for _ in range(rng.choice((1, 1, 2))):
        tree = _changed(tree, rng, values)
    return tree


MSGPACK_VALUES: list[Any] = [None, True, False, [], {}, b"", b"\xff", [[]], {"": []}, *NUMBERS, *FLOATS, *TEXTS]
JSON_VALUES: list[Any] = [value for value in MSGPACK_VALUES if not isinstance(value, bytes)] + HUGE + SURROGATES


def _load_json(data: bytes) -> Any:
    return json.loads(data)


def _mutated(
    data: bytes,
    corpus: Sequence[bytes],
    rng: Random,
    load: Callable[[bytes], Any],
    dump: Callable[[Any], bytes],
    values: Sequence[Any],
) -> bytes:
    chance = rng.random()
    if chance < NEST_SHARE:
        return bytes(nest(bytearray(data), corpus, rng))[:MAX_BYTES]
    if chance < BYTES_SHARE:
        return mutated_bytes(data, corpus, rng)
    try:
        return dump(mutated_tree(load(data), rng, values))
    except (ValueError, TypeError, OverflowError, RecursionError):  # it is no document any more
        return mutated_bytes(data, corpus, rng)


def _changed(tree: Any, rng: Random, values: Sequence[Any]) -> Any:
    """One place, found by going down at random, is changed; what is around it is copied."""
    children = isinstance(tree, dict | list) and len(tree) > 0
    if not children or rng.random() < 0.15:
        return _replaced(tree, rng, values)
    if isinstance(tree, dict):
        return _changed_mapping(tree, rng, values)
    index = rng.randrange(len(tree))
    match rng.randrange(8):
        case 0:
            return tree[:index] + tree[index + 1 :]
        case 1:
            return tree[: index + 1] + tree[index:]
        case 2:
            return [*tree, rng.choice(values)]
        case _:
            return [*tree[:index], _changed(tree[index], rng, values), *tree[index + 1 :]]


def _changed_mapping(tree: dict[Any, Any], rng: Random, values: Sequence[Any]) -> dict[Any, Any]:
    key = rng.choice(list(tree))
    match rng.randrange(8):
        case 0:
            return {name: value for name, value in tree.items() if name != key}
        case 1:
            return {rng.choice(TEXTS) if name == key else name: value for name, value in tree.items()}
        case 2:
            return tree | {key: tree[rng.choice(list(tree))]}
        case _:
            return tree | {key: _changed(tree[key], rng, values)}


def _replaced(value: Any, rng: Random, values: Sequence[Any]) -> Any:
    chance = rng.random()
    if chance < 0.4 and isinstance(value, int) and not isinstance(value, bool):
        return value + rng.choice((-1, 1, value, -2 * value))
    if chance < 0.4 and isinstance(value, str):
        return value + rng.choice(TEXTS) if rng.random() < 0.5 else value[: rng.randrange(len(value) + 1)]
    if chance < 0.5:
        return [value]
    return rng.choice(values)
