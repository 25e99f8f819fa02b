"""Images that are read while their prompts are computed: bytes and tokens are those of one piece, and nothing stays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gpu_node.engine.engine import Engine
from gpu_node.engine.growing_images import MAX_GROWING, SPARE_BLOCKS
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.engine.requests.image import Growth, HandedOver
from shared.messages.requests.payload import Payload
from tests.gpu_node import tiny
from tests.gpu_node.engine.tiny_engines import BLOCK, Make, tiny_engines
from tests.gpu_node.workload import prompt, request

TEXT = prompt(1, 42)
STEP = 16
NUM_TOKENS = 12


@pytest.fixture(params=["reference", "cpu"])
def make(request: pytest.FixtureRequest, tiny_path: Path) -> Iterator[Make]:
    with tiny_engines(str(request.param), tiny_path) as made:
        yield lambda **given: made(**{"step_tokens": STEP} | given)


@dataclass
class Reader:
    """Who reads images of an engine; their memory is this process's."""

    engine: Engine
    memory: dict[int, bytearray] = field(default_factory=dict)
    growths: list[Growth] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)

    def make(self, number: int, num_bytes: int) -> memoryview:
        self.memory[number] = bytearray(num_bytes)
        return memoryview(self.memory[number])

    def look(self) -> None:
        growths, ended = self.engine.growing.grow(self.make)
        self.growths += growths
        self.ended += ended
        self.engine.check()

    def step(self) -> list[OutputChunk]:
        chunks = self.engine.step(0.0)
        self.look()
        return chunks


def asked(name: str = "a", **sampling: Any) -> Payload:
    return request(name, TEXT, NUM_TOKENS, seed=7, ignore_eos=True, **sampling)


def begun(engine: Engine, payload: Payload) -> tuple[Reader, list[OutputChunk]]:
    """It is read until its first token comes; that is the first chunk."""
    reader = Reader(engine)
    assert engine.add(payload) == []
    engine.growing.open([payload.request_id, "unknown"])
    chunks: list[OutputChunk] = []
    while not chunks:
        chunks += reader.step()
    return reader, chunks


def taken(engine: Engine, name: str = "a") -> tuple[list[OutputChunk], HandedOver]:
    chunks, _ = engine.evict([name])
    (image,) = engine.hand_over([name])
    return chunks, image


def tokens(chunks: list[OutputChunk]) -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = {}
    for chunk in chunks:
        found.setdefault((chunk.request_id, chunk.choice), []).extend(chunk.token_ids)
    return found


def drained(engine: Engine) -> list[OutputChunk]:
    return [chunk for chunks in tiny.steps(engine) for chunk in chunks]


def alone(engine: Engine, payload: Payload) -> dict[tuple[str, int], list[int]]:
    assert engine.add(payload) == []
    return tokens(drained(engine))


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("sampling", [{}, {"num_choices": 3, "num_logprobs": 1}])
def test_what_is_read_ahead_is_the_beginning_of_the_image_that_leaves_in_one_piece(
    make: Make, async_scheduling: bool, sampling: dict[str, Any]
) -> None:
    giver, plain = make(async_scheduling=async_scheduling), make(async_scheduling=async_scheduling)
    assert giver.model is not None
    block_bytes = giver.model.block_bytes
    reader, chunks = begun(giver, asked(**sampling))
    assert [one.num_bytes // block_bytes for one in reader.growths] == [4, 8, 10], "two tokens are left"
    assert {(one.request_id, one.attempt, one.number) for one in reader.growths} == {("a", 0, 1)}
    assert {one.most_bytes // block_bytes for one in reader.growths} == {10 + SPARE_BLOCKS}
    before = giver.counts
    last, image = taken(giver)
    num_blocks = image.kv_bytes // block_bytes
    assert (giver.counts - before).evicted.out_bytes == (num_blocks - 10) * block_bytes, "the others are there"
    assert (image.number, reader.ended) == (1, [])
    assert bytes(image.pieces[0]) == bytes(reader.memory[1][: num_blocks * block_bytes])

    other = Reader(plain)
    plain.add(asked(**sampling))
    plain_chunks: list[OutputChunk] = []
    while not plain_chunks:
        plain_chunks += other.step()
    plain_chunks += plain.evict(["a"])[0]
    (whole,) = plain.hand_over(["a"])
    assert (image.data, tokens([*chunks, *last])) == (whole.data, tokens(plain_chunks))

    taker = make()
    taker.add(asked(**sampling), image.data)
    assert tokens([*chunks, *last, *drained(taker)]) == alone(make(), asked(**sampling))
    giver.release([image.number])
    assert giver.stats().evicted_kv_bytes == 0
    reader.look()
    assert reader.ended == []


@pytest.mark.parametrize("case", ["abort", "reset", "newer attempt", "end"])
def test_an_image_of_a_request_that_does_not_leave_ends_and_its_room_is_free(make: Make, case: str) -> None:
    engine = make()
    reader, _ = begun(engine, asked())
    assert engine.stats().evicted_kv_bytes == reader.growths[0].most_bytes
    match case:
        case "abort":
            engine.abort(["a"])
        case "reset":
            engine.reset()
        case "newer attempt":
            engine.add(replace(asked(), attempt=1))
        case _:
            drained(engine)
    reader.look()
    assert (reader.ended, engine.stats().evicted_kv_bytes) == ([1], 0)
    engine.reset()
    assert begun(engine, replace(asked("b"), prompt_token_ids=prompt(2, 42)))[0].growths[0].number == 2


def test_a_request_that_goes_on_here_after_all_has_its_tokens_and_its_image_ends(make: Make) -> None:
    engine = make()
    reader, chunks = begun(engine, asked())
    chunks += engine.evict(["a"])[0]
    engine.add(replace(asked("b"), prompt_token_ids=prompt(2, 42)))
    drained(engine)
    engine.add(asked())
    chunks += drained(engine)
    reader.look()
    assert reader.ended == [1]
    assert tokens(chunks) == alone(make(), asked())
    assert engine.stats().evicted_kv_bytes == 0


def test_one_that_is_taken_out_in_the_middle_of_its_prompt_goes_on_elsewhere(make: Make) -> None:
    engine, reader = make(async_scheduling=False), None
    reader = Reader(engine)
    engine.add(asked())
    engine.growing.open(["a"])
    assert reader.step() == reader.step() == []
    chunks, image = taken(engine)
    assert image.number == reader.growths[0].number
    taker = make()
    taker.add(asked(), image.data)
    assert tokens([*chunks, *drained(taker)]) == alone(make(), asked())


def test_an_image_that_nobody_reads_any_more_leaves_in_one_piece_under_another_number(make: Make) -> None:
    engine = make()
    reader, chunks = begun(engine, asked())
    engine.release([1])
    last, image = taken(engine)
    reader.look()
    assert (image.number, reader.ended) == (2, [1])
    taker = make()
    taker.add(asked(), image.data)
    assert tokens([*chunks, *last, *drained(taker)]) == alone(make(), asked())


def test_without_room_for_all_of_it_nothing_is_read_ahead(make: Make) -> None:
    engine = make()
    assert engine.model is not None
    most_bytes = (10 + SPARE_BLOCKS) * engine.model.block_bytes
    assert begun(make(evicted_kv_bytes=most_bytes), asked())[0].growths
    little = make(evicted_kv_bytes=most_bytes - 1)
    reader, chunks = begun(little, asked())
    assert (reader.growths, reader.ended) == ([], [])
    last, image = taken(little)
    engine.add(asked(), image.data)
    assert tokens([*chunks, *last, *drained(engine)]) == alone(make(), asked())


def test_a_request_that_leaves_has_the_room_of_one_whose_image_grows(make: Make) -> None:
    """Host memory has room for the image that grows and three blocks more; the other request has eleven."""
    engine = make()
    assert engine.model is not None
    engine = make(evicted_kv_bytes=(10 + SPARE_BLOCKS + 3) * engine.model.block_bytes)
    reader, chunks = begun(engine, asked())
    other = replace(asked("b"), prompt_token_ids=prompt(2, 42))
    engine.add(other)
    while not any(chunk.request_id == "b" for chunk in chunks):
        chunks += reader.step()
    last, image = taken(engine, "b")
    reader.look()
    assert reader.ended == [1]
    taker = make()
    taker.add(other, image.data)
    of_b = [chunk for chunk in [*chunks, *last, *drained(taker)] if chunk.request_id == "b"]
    assert tokens(of_b) == alone(make(), other)


def test_an_answer_that_outgrows_the_image_leaves_in_one_piece(make: Make) -> None:
    """Its prompt has 42 tokens: the image has room for 56."""
    engine = make()
    payload = request("a", TEXT, 40, seed=7, ignore_eos=True)
    reader, chunks = begun(engine, payload)
    for _ in range(30):
        chunks += reader.step()
    last, image = taken(engine)
    reader.look()
    assert (image.number, reader.ended) == (2, [1])
    taker = make()
    taker.add(payload, image.data)
    assert tokens([*chunks, *last, *drained(taker)]) == alone(make(), payload)


def test_a_prompt_of_one_step_and_those_beyond_the_bound_are_not_read_ahead(make: Make) -> None:
    engine = make(step_tokens=64)
    assert begun(engine, asked())[0].growths == [], "all of it is there at once"
    many = make(step_tokens=8, max_num_seqs=MAX_GROWING + 1, kv_cache_bytes=4 << 20)
    reader = Reader(many)
    names = [f"r{number}" for number in range(MAX_GROWING + 1)]
    for number, name in enumerate(names):
        many.add(replace(asked(name), prompt_token_ids=prompt(10 + number, 9)))
    many.growing.open(names)
    for _ in range(5 * len(names)):
        reader.step()
    assert {one.request_id for one in reader.growths} <= set(names[:MAX_GROWING])


def test_blocks_that_were_cached_are_readable_at_once(make: Make) -> None:
    engine = make()
    alone(engine, replace(asked("b"), prompt_token_ids=TEXT[:17]))
    reader, _ = begun(engine, asked())
    assert engine.model is not None
    assert [one.num_bytes // engine.model.block_bytes for one in reader.growths] == [(16 + STEP) // BLOCK, 10]
