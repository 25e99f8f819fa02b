"""Attention of rows that lie on another device is that of home, bit by bit, whatever the sizes and whoever is busy."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from gpu_node.kernels.cpu import Type
from tests.gpu_node.offload.attention_engine import AttentionEngine, Grown, Part, Sizes
from tests.gpu_node.offload.link_words import LinkWords
from tests.gpu_node.offload.pair import COLD, PAGE_BYTES, RIGHT, Pair, sequences
from tests.gpu_node.offload.waiting import wait_until

SIZES = [
    Sizes(),
    Sizes(num_heads=9, num_kv_heads=3, head_dim=64, block_size=16, num_layers=1),
    Sizes(num_heads=6, num_kv_heads=1, head_dim=6, block_size=3, num_layers=3, window=5),
    Sizes(num_heads=8, num_kv_heads=8, head_dim=32, block_size=32, num_layers=2, window=40),
]
"""KV heads alone and shared, blocks that are whole panels and not, windows and none."""


@pytest.mark.parametrize("out", [Type.FLOAT32, Type.BFLOAT16], ids=["wide", "narrow"])
@pytest.mark.parametrize("threads", [(1, 1), (2, 1), (1, 2), (2, 3)], ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=["small", "smollm2", "odd", "unshared"])
def test_rows_are_those_of_home(
    stack: ExitStack, tmp_path: Path, sizes: Sizes, threads: tuple[int, int], out: Type
) -> None:
    """Steps of chunks and of single rows, sequences of any lengths; the receiver has steps of its own, or none."""
    chance = random.Random(str((sizes, threads, out)))
    pair = Pair(stack, tmp_path, sizes, num_threads=threads[0], out=out)
    cold = AttentionEngine(COLD, threads[1], num_idle_operators=3, page_bytes=PAGE_BYTES)
    stack.enter_context(closing(cold))
    pair.receive(cold.device, cold.arena)
    every = sequences(6, chance)
    num_local = chance.randint(0, 5)
    for seed in range(6):
        own = cold.step([Part([(Grown((0,)), 8)])])[1] if seed % 2 == 1 else 0
        rows = [(one, chance.randint(1, 9 if seed % 3 == 0 else 1)) for one in every]
        assert pair.step(rows[:num_local], rows[num_local:], seed) == RIGHT
        if own:
            cold.device.wait(own)
    assert cold.device.num_served == 6 * sizes.num_layers


@pytest.mark.parametrize("num_threads", [1, 2])
def test_rows_may_be_sent_in_parts(stack: ExitStack, tmp_path: Path, num_threads: int) -> None:
    """Two tasks of a layer are under way, or one where all rows of a part are at home."""
    pair = Pair(stack, tmp_path, SIZES[2], num_threads=num_threads, num_parts=2)
    cold = stack.enter_context(closing(AttentionEngine(COLD, num_threads, page_bytes=PAGE_BYTES)))
    pair.receive(cold.device, cold.arena)
    chance = random.Random(num_threads)
    every = sequences(6, chance)
    for seed in range(6):
        rows = [(one, chance.randint(1, 5)) for one in every]
        assert pair.step(rows[:2], rows[2:], seed) == RIGHT
    few = sequences(2, chance)
    served = cold.device.num_served
    assert pair.step([(few[0], 8)], [(few[1], 1)], 0) == RIGHT
    assert cold.device.num_served == served + SIZES[2].num_layers


def test_a_link_has_as_many_slots_as_a_program_has_tasks_under_way(stack: ExitStack, tmp_path: Path) -> None:
    pair = Pair(stack, tmp_path, SIZES[0], num_parts=3)
    with pytest.raises(RuntimeError, match="fewer slots than the program has tasks under way"):
        pair.step([], [(one, 1) for one in sequences(3, random.Random(0))], 0)
    with pytest.raises(RuntimeError, match="a program that sends nothing"):
        pair.home.run([Part([(Grown((0,)), 1)], pair.link)])


def test_two_devices_that_send_to_each_other_both_come_to_their_end(stack: ExitStack, tmp_path: Path) -> None:
    """Each waits in its gathers while the other's tasks wait for it: who waits serves."""
    pairs = []
    for name in ("there", "back"):
        (tmp_path / name).mkdir()
        pairs.append(Pair(stack, tmp_path / name, SIZES[0], num_threads=2, page_bytes=PAGE_BYTES))
    for own, other in (pairs, pairs[::-1]):
        own.receive(other.away.device, other.away.arena)
    chance = random.Random(0)
    every = [sequences(3, chance) for _ in pairs]
    for seed in range(20):
        rows = [[(one, 1 + seed % 2) for one in some] for some in every]
        with ThreadPoolExecutor(len(pairs)) as threads:
            steps = [threads.submit(pair.step, [], mine, seed) for pair, mine in zip(pairs, rows, strict=True)]
        assert [step.result() for step in steps] == [RIGHT, RIGHT]


def test_a_receiver_that_sleeps_is_woken(stack: ExitStack, tmp_path: Path) -> None:
    pair = Pair(stack, tmp_path, SIZES[0])
    cold = stack.enter_context(closing(AttentionEngine(COLD, 2, page_bytes=PAGE_BYTES)))
    pair.receive(cold.device, cold.arena)
    words = LinkWords(pair.path)
    (one,) = sequences(1, random.Random(0))
    for seed in range(3):
        wait_until(lambda: words["receiver_sleeps"] == 1)
        assert pair.step([], [(one, 2)], seed) == RIGHT


def test_counters_wrap(stack: ExitStack, tmp_path: Path) -> None:
    """They begin where they soon do: the ring goes round often, the counters once."""
    pair = Pair(stack, tmp_path, SIZES[0])
    cold = stack.enter_context(closing(AttentionEngine(COLD, page_bytes=PAGE_BYTES)))
    pair.receive(cold.device, cold.arena)
    words = LinkWords(pair.path)
    assert words["num_asked"] == 0xFFFFFFF0
    (one,) = sequences(1, random.Random(0))
    for seed in range(12):
        assert pair.step([], [(one, 1)], seed) == RIGHT
    assert words["num_asked"] == words["num_served"] == 24 - 16
