"""A side that stops, at whichever state of the protocol, or does what it must not: the other goes on, with no harm.

The side that stops is played by hand here, through the words of the link: behind its last write there is nothing that
the other side could tell from a death. `test_link_processes` does the same to processes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from gpu_node.graph.share import WHOLE, Share
from gpu_node.kernels.cpu import CpuLinkSender, Int32s
from gpu_node.kernels.link_file import link_path
from tests.gpu_node.offload.attention_engine import AttentionEngine, Part, Sizes
from tests.gpu_node.offload.link_words import LinkWords
from tests.gpu_node.offload.pair import COLD, LOST, PAGE_BYTES, RIGHT, Pair, sequences
from tests.gpu_node.offload.waiting import wait_until

DEADLINE_S = 0.2  # a busy machine stands still for some hundredths of a second
SIZES = Sizes()
SECOND_PAGE = PAGE_BYTES // SIZES.cache.block_bytes
"""Its first block."""


@pytest.fixture
def pair(stack: ExitStack, tmp_path: Path) -> Pair:
    """A sender that waits a moment only."""
    return Pair(stack, tmp_path, SIZES, deadline_s=DEADLINE_S)


@pytest.fixture
def cold(stack: ExitStack) -> AttentionEngine:
    return stack.enter_context(closing(AttentionEngine(COLD, page_bytes=PAGE_BYTES)))


def written(cold: AttentionEngine) -> Int32s:
    """What lies in the receiver's own page and in the one that senders' blocks would be in."""
    return cold.arena.bits()[: 2 * PAGE_BYTES // 4].copy()


def accept(words: LinkWords) -> None:
    words["num_served"] = words["num_asked"]
    words["accepted"] = words["generation"]


# --- the receiver stops -----------------------------------------------------------------------------------------------


def never_looks(_words: LinkWords) -> None:
    """It dies before it accepts."""


def answers_nothing(words: LinkWords) -> None:
    """It dies before it takes a task."""
    accept(words)


def answers_half(words: LinkWords) -> None:
    """It dies with an answer written, and the completion counter where it was."""
    accept(words)
    words.memory[LinkWords.HEADER :] = b"\xff" * (len(words.memory) - LinkWords.HEADER)


def refuses(words: LinkWords) -> None:
    """It says that it serves no more."""
    accept(words)
    words["refused"] = words["generation"]


@pytest.mark.parametrize("stops", [never_looks, answers_nothing, answers_half, refuses])
def test_a_receiver_that_stops_costs_its_rows_and_no_others(pair: Pair, stops: Callable[[LinkWords], None]) -> None:
    words = LinkWords(pair.path)
    stops(words)
    was_open = pair.link.is_open
    local, remote = sequences(2, random.Random(0))
    assert pair.step([(local, 3)], [(remote, 3)], seed=0) == LOST
    assert not pair.link.is_open
    assert pair.link.generation == 1 + was_open
    assert pair.step([(local, 1)], [(remote, 1)], seed=1) == LOST


def test_what_is_under_way_when_its_receiver_refuses_is_given_up_by_the_next_that_would_be_sent(
    stack: ExitStack, tmp_path: Path
) -> None:
    """As in lanes, where parts are sent while others are away: nobody gathers what is lost, so who sends drops it.

    The second part comes behind an answer of another link, so the first one is refused by then.
    """
    sizes = Sizes(num_layers=1)
    engine = stack.enter_context(closing(AttentionEngine(sizes, offloads=False)))
    first, second, other = (WHOLE.cut(number, 3) for number in range(3))
    for share in (first, other):
        send(engine, share)
    gather(engine, other)
    send(engine, second)
    for share in (first, second):
        gather(engine, share)
    senders = [CpuLinkSender(sizes.link(), "hot", name, deadline_s=60.0, folder=tmp_path) for name in ("one", "two")]
    refusing, answering = (stack.enter_context(closing(one)) for one in senders)
    words = [LinkWords(link_path(tmp_path, "hot", name)) for name in ("one", "two")]
    for one in words:
        accept(one)
    rows = [(one, 1) for one in sequences(3, random.Random(0))]
    step, event = engine.step([Part(rows[:2], refusing), Part(rows[2:], answering)])
    wait_until(lambda: words[1]["num_asked"] != words[1]["num_served"])
    words[0]["refused"] = words[0]["generation"]
    words[1]["num_served"] = words[1]["num_asked"]
    engine.device.wait(event)
    assert step.remotes.lost.tolist() == [1, 0]
    assert (refusing.generation, answering.generation) == (2, 1)
    accept(words[0])
    assert refusing.is_open, "it can be used again"


def send(engine: AttentionEngine, share: Share) -> None:
    engine.program.work_on(share)
    engine.program.add("send", engine.q, engine.k, engine.v, 0, 0)


def gather(engine: AttentionEngine, share: Share) -> None:
    engine.program.work_on(share)
    engine.program.add("gather", engine.outs[0])


def test_a_late_answer_of_another_generation_is_never_read(pair: Pair) -> None:
    words = LinkWords(pair.path)
    accept(words)
    local, remote = sequences(2, random.Random(0))
    assert pair.step([(local, 3)], [(remote, 3)], seed=0, generation=1) == LOST
    words["num_served"] = words["num_served"] + 1  # it wakes up, and goes on where it was stopped
    assert not pair.link.is_open
    assert pair.step([(local, 1)], [(remote, 1)], seed=1, generation=2) == LOST
    accept(words)
    assert pair.link.is_open
    # planned before the drop: what it counts on was lost, so it is not asked for though the link is open
    assert pair.step([(local, 1)], [(remote, 1)], seed=2, generation=1) == LOST
    assert words["num_asked"] == 0xFFFFFFF0 + 1


# --- the sender stops, or is none -------------------------------------------------------------------------------------


def served(pair: Pair, cold: AttentionEngine) -> int:
    """Has the receiver look at all that is there; the tasks that it has served."""
    cold.run([])
    return cold.device.num_served


def test_rows_without_a_bump_are_nobodys_task(pair: Pair, cold: AttentionEngine) -> None:
    pair.receive(cold.device, cold.arena)
    words = LinkWords(pair.path)
    words.memory[LinkWords.HEADER :] = b"\xff" * (len(words.memory) - LinkWords.HEADER)
    assert served(pair, cold) == 0
    assert words["refused"] == 0


def test_a_generation_that_moves_is_accepted_with_what_was_asked_forgotten(pair: Pair, cold: AttentionEngine) -> None:
    pair.receive(cold.device, cold.arena)
    words = LinkWords(pair.path)
    words["generation"] = 2
    wait_until(lambda: words["accepted"] == 2)
    assert words["num_served"] == words["num_asked"]


BAD = {
    "layer": ("task", 0, SIZES.num_layers),
    "window": ("task", 1, 0),
    "before": ("task", 2, -1),
    "nothing": ("task", 3, 0),
    "beyond": ("task", 3, 2),
    "version": ("table", 0, 7),
    "sequences": ("table", 1, 17),
    "blocks": ("table", 2, -1),
    "start": ("starts", 0, -1),
    "rows": ("num_rows", 0, 97),
    "short": ("starts", 0, 4 * 40),
    "block": ("blocks", 0, 1 << 30),
    "own": ("blocks", 0, SECOND_PAGE - 1),
    "negative": ("blocks", 39, -1),
}
"""Of a task that would be right: which part of it, its which number, and what that is instead."""


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_task_that_no_sender_would_ask_for_is_refused_and_writes_nothing(
    pair: Pair, cold: AttentionEngine, bad: tuple[str, int, int]
) -> None:
    pair.receive(cold.device, cold.arena)
    words = LinkWords(pair.path)
    (remote,) = sequences(1, random.Random(0))
    blocks = [SECOND_PAGE + block for block in remote.blocks]
    table, task = words.part("table", SIZES.link()), words.part("task", SIZES.link())
    table[:3] = (1, 1, 40)
    task[:5] = (0, 1 << 30, 0, 1, 1)
    for name, values in (("starts", (0,)), ("num_rows", (1,)), ("num_blocks", (40,)), ("blocks", blocks)):
        words.part(name, SIZES.link())[: len(values)] = values
    part, place, value = bad
    words.part(part, SIZES.link())[place] = value
    before = written(cold)
    words["num_asked"] = words["num_asked"] + 1
    words["rings"] = words["rings"] + 1
    assert served(pair, cold) == 0
    assert words["refused"] == 1
    assert words["num_served"] == 0xFFFFFFF0
    assert bool((written(cold) == before).all())
    words["generation"] = 2
    wait_until(lambda: words["accepted"] == 2)


def test_pages_that_are_not_lent_are_refused_and_when_they_are_lent_again_all_is_well(
    pair: Pair, cold: AttentionEngine
) -> None:
    receiver = pair.receive(cold.device, cold.arena)
    local, remote = sequences(2, random.Random(0))
    receiver.take_back([1])
    before = written(cold)
    assert pair.step([(local, 3)], [(remote, 3)], seed=0) == LOST
    assert bool((written(cold) == before).all())
    receiver.lend([1])
    wait_until(lambda: pair.link.is_open)
    (again,) = sequences(1, random.Random(1))
    assert pair.step([(local, 1)], [(again, 3)], seed=1) == RIGHT


def test_a_receiver_that_closes_says_so_at_once(pair: Pair, cold: AttentionEngine) -> None:
    receiver = pair.receive(cold.device, cold.arena)
    local, remote = sequences(2, random.Random(0))
    assert pair.step([(local, 3)], [(remote, 3)], seed=0) == RIGHT
    receiver.close()
    assert not pair.link.is_open
    assert pair.step([(local, 1)], [(remote, 1)], seed=1) == LOST
