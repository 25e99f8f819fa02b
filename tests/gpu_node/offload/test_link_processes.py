"""Two processes: rows are those of home; either is killed or stopped at any time, and the other goes on."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from gpu_node.kernels.cpu import CpuLinkReceiver
from tests.gpu_node.offload.attention_engine import AttentionEngine, Grown, Part, Sizes
from tests.gpu_node.offload.pair import COLD, LENT_PAGES, LOST, PAGE_BYTES, RECEIVER, RIGHT, SENDER, Pair, sequences
from tests.gpu_node.offload.waiting import wait_until

pytestmark = pytest.mark.slow

MAX_TOKENS = 150
"""Of a sequence: its blocks hold no more."""


@pytest.fixture
def start(stack: ExitStack) -> Callable[..., subprocess.Popen[str]]:
    """A process of this folder, with its arguments; killed at the end."""

    def start(module: str, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", f"tests.gpu_node.offload.{module}", *map(str, arguments)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        stack.enter_context(process)
        stack.callback(process.kill)
        return process

    return start


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


Start = Callable[..., subprocess.Popen[str]]


@pytest.mark.parametrize("num_threads", [1, 2])
def test_rows_of_another_process_are_those_of_home(
    stack: ExitStack, tmp_path: Path, start: Start, num_threads: int
) -> None:
    pair = Pair(stack, tmp_path, Sizes())
    process = start("receiver_process", tmp_path, SENDER, RECEIVER, num_threads)
    assert heard(process) == "open"
    wait_until(lambda: pair.link.is_open)
    pair.link.hide()
    chance = random.Random(num_threads)
    local, *remote = sequences(5, chance)
    for seed in range(60):
        rows = [(one, chance.randint(1, 2)) for one in remote]
        assert pair.step([(local, 1)], rows, seed) == RIGHT


def connected(stack: ExitStack, folder: Path, start: Start, deadline_s: float) -> tuple[Pair, subprocess.Popen[str]]:
    pair = Pair(stack, folder, Sizes(), deadline_s=deadline_s)
    process = start("receiver_process", folder, SENDER, RECEIVER, 2)
    assert heard(process) == "open"
    wait_until(lambda: pair.link.is_open)
    return pair, process


def until_lost(pair: Pair, stop: Callable[[], None], chance: random.Random) -> None:
    """Steps, in the midst of one of which ``stop`` happens, until one is lost: all before it are right."""
    local, *remote = sequences(4, chance)
    generation = pair.link.generation
    timer = threading.Timer(chance.random() * 0.05, stop)
    timer.start()
    for seed in range(100_000):
        if local.length + 1 > MAX_TOKENS:
            local, *remote = sequences(4, chance)
        told = pair.step([(local, 1)], [(one, 1) for one in remote], seed, generation)
        assert told in (RIGHT, LOST)
        if told == LOST:
            break
    timer.join()
    assert pair.link.generation == generation + 1


@pytest.mark.parametrize("try_", range(3))
def test_a_receiver_is_killed_in_the_midst_of_it(stack: ExitStack, tmp_path: Path, start: Start, try_: int) -> None:
    chance = random.Random(try_)
    pair, process = connected(stack, tmp_path, start, deadline_s=1.0)
    until_lost(pair, process.kill, chance)
    assert not pair.link.is_open
    local, remote = sequences(2, chance)
    assert pair.step([(local, 3)], [(remote, 3)], 0) == LOST


def test_a_receiver_is_stopped_over_and_over_and_serves_again(stack: ExitStack, tmp_path: Path, start: Start) -> None:
    chance = random.Random(0)
    pair, process = connected(stack, tmp_path, start, deadline_s=1.0)
    for _ in range(4):
        until_lost(pair, lambda: process.send_signal(signal.SIGSTOP), chance)
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: pair.link.is_open)


@pytest.mark.parametrize("signal_", [signal.SIGKILL, signal.SIGSTOP])
def test_a_sender_that_stops_leaves_the_receiver_as_it_was(
    stack: ExitStack, tmp_path: Path, start: Start, signal_: signal.Signals
) -> None:
    """The receiver's own steps go on, pages come back, and another sender is served."""
    process = start("sender_process", tmp_path)
    assert heard(process) == "made"
    cold = stack.enter_context(closing(AttentionEngine(COLD, 2, num_idle_operators=20, page_bytes=PAGE_BYTES)))
    link = CpuLinkReceiver(Sizes().link(), SENDER, RECEIVER, device=cold.device, arena=cold.arena, folder=tmp_path)
    link.lend(LENT_PAGES)
    wait_until(lambda: cold.device.num_served > 100)
    process.send_signal(signal_)
    first = cold.answers(cold.run([Part([(Grown((0,)), 8)])]))
    assert bool((cold.answers(cold.run([Part([(Grown((0,)), 8)])])) == first).all())
    link.take_back(LENT_PAGES)
    link.close()
    (tmp_path / "again").mkdir()
    pair = Pair(stack, tmp_path / "again", Sizes())
    pair.receive(cold.device, cold.arena)
    local, remote = sequences(2, random.Random(0))
    assert pair.step([(local, 3)], [(remote, 3)], 0) == RIGHT
