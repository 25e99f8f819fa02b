"""Beginnings of prompts from one engine's cache to another's: the tokens are those of an engine that computes all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from transformers import LlamaForCausalLM

from gpu_node.engine import prefix_exchange
from gpu_node.engine.engine import Engine
from gpu_node.engine.requests.image import BlockFormat, ImageError
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.config.engines.tiers import TierOptions
from shared.messages.prefixes.prefix_ask import PrefixAsk
from shared.messages.requests.payload import Payload
from tests.gpu_node import tiny
from tests.gpu_node.adapter_folders import ALL, save_adapter
from tests.gpu_node.engine.tiny_engines import BLOCK, MIB, Make, tiny_engines
from tests.gpu_node.workload import prompt, request

TEXT = prompt(1, 42)
WHOLE = 40
"""Tokens of its whole blocks."""


@pytest.fixture(params=["reference", "cpu"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(kind: str, tiny_path: Path) -> Iterator[Make]:
    with tiny_engines(kind, tiny_path) as make:
        yield make


def asked(name: str, text: list[int] = TEXT, adapter: str = "") -> Payload:
    return replace(request(name, text, 12, num_logprobs=2, seed=7, ignore_eos=True), adapter=adapter)


def ran(engine: Engine, payload: Payload) -> tuple[list[int], list[Any], int | None]:
    """Tokens, logprobs, and how many tokens of the prompt were cached."""
    assert engine.add(payload) == []
    chunks = [chunk for chunks in tiny.steps(engine) for chunk in chunks]
    engine.check()
    tokens = [token for chunk in chunks for token in chunk.token_ids]
    return tokens, [one for chunk in chunks for one in chunk.logprobs], chunks[0].cached_tokens


def block_bytes(engine: Engine) -> int:
    assert engine.model is not None
    return engine.model.block_bytes


def ask(engine: Engine, payload: Payload, from_token: int = 0) -> PrefixAsk:
    """What a node with such an engine asks another."""
    model = engine.model
    assert model is not None
    own = payload.prompt_token_ids
    name = BlockFormat.of(model).name
    return PrefixAsk(payload.request_id, 0, "tiny", payload.adapter, name, own, from_token)


@pytest.mark.parametrize("num_there", [0, 16])
def test_the_rest_alone_is_computed_and_nothing_else_changes(make: Make, kind: str, num_there: int) -> None:
    giver, taker, alone = make(), make(), make()
    ran(giver, asked("a"))
    if num_there:
        ran(taker, asked("b", TEXT[: num_there + 1]))
    found = taker.prefixes.find("tiny", TEXT)
    assert found == (num_there, num_there)

    copy = giver.prefixes.copy(ask(taker, asked("c"), found[0]))
    assert copy is not None
    assert (copy.request_id, copy.number, copy.kv_bytes) == ("c", 1, (WHOLE - num_there) // BLOCK * block_bytes(giver))
    assert giver.stats().evicted_kv_bytes == copy.kv_bytes, "until it has been fetched"
    giver.release([copy.number])
    assert giver.stats().evicted_kv_bytes == 0

    assert taker.prefixes.take_in(asked("c"), copy.data) == WHOLE - num_there
    assert taker.prefixes.find("tiny", TEXT) == (WHOLE, WHOLE)
    here, there, computed = ran(taker, asked("c")), ran(giver, asked("c")), ran(alone, asked("c"))
    assert here == there, "as with a hit of its own, to the bit"
    assert (here[2], computed[2]) == (WHOLE, 0)
    assert here[0] == computed[0]
    if kind == "cpu":
        assert here[1] == computed[1], "whose rows are the same in any batch"


def test_requests_that_run_meanwhile_are_not_disturbed(make: Make) -> None:
    """Both engines have steps in flight when blocks are read and written."""
    giver, taker, alone = make(), make(), make()
    ran(giver, asked("a"))
    beside = [asked(name, prompt(number, 30)) for number, name in enumerate("xy", 5)]
    expected = {one.request_id: ran(alone, one)[0] for one in beside}
    found: dict[str, list[int]] = {name: [] for name in "xy"}

    def step(engine: Engine) -> None:
        for chunk in engine.step(0.0):
            found[chunk.request_id] += chunk.token_ids

    for engine, one in zip((giver, taker), beside, strict=True):
        engine.add(one)
        for _ in range(3):
            step(engine)
    copy = giver.prefixes.copy(ask(taker, asked("c")))
    assert copy is not None
    assert taker.prefixes.take_in(asked("c"), copy.data) == WHOLE
    for engine in (giver, taker):
        while engine.has_work:
            step(engine)
        engine.check()
    assert found == expected
    assert ran(taker, asked("c"))[0] == ran(make(), asked("c"))[0]


def test_what_host_memory_has_is_given_too(make: Make) -> None:
    """Another request has taken the end of the first one's from the giver's device."""
    taker, alone = make(), make()
    giver = make(kv_cache_bytes=36 * block_bytes(taker), tiers=TierOptions(host_bytes=MIB))
    ran(giver, asked("a"))
    ran(giver, asked("x", prompt(3, 100)))
    on_device, in_all = giver.prefixes.find("tiny", TEXT)
    assert 0 < on_device < in_all == WHOLE
    copy = giver.prefixes.copy(ask(taker, asked("c")))
    assert copy is not None
    assert taker.prefixes.take_in(asked("c"), copy.data) == WHOLE
    assert ran(taker, asked("c"))[0] == ran(alone, asked("c"))[0]


def test_an_adapter_s_beginning_is_of_no_use_to_another(
    make: Make, tiny_model: LlamaForCausalLM, tiny_path: Path, tmp_path: Path
) -> None:
    save_adapter(tiny_model, tmp_path / "legal", ALL, rank=6, seed=1)
    adapters = (AdapterSpec("legal", str(tmp_path / "legal")),)
    spec = ModelSpec(name="tiny", source=str(tiny_path), max_model_len=tiny.CONTEXT, adapters=adapters)
    giver, taker = make(spec), make(spec)
    ran(giver, asked("a", adapter="legal"))
    assert giver.prefixes.copy(ask(taker, asked("c"))) is None
    assert giver.prefixes.copy(ask(taker, asked("c", adapter="another"))) is None
    copy = giver.prefixes.copy(ask(taker, asked("c", adapter="legal")))
    assert copy is not None
    with pytest.raises(ImageError, match="its blocks are"):
        taker.prefixes.take_in(asked("c"), copy.data)
    assert taker.prefixes.take_in(asked("c", adapter="legal"), copy.data) == WHOLE
    assert ran(taker, asked("c", adapter="legal")) == ran(giver, asked("c", adapter="legal"))
    assert ran(taker, asked("d"))[2] == 0


def test_nothing_is_given_where_nothing_is_known_or_blocks_are_cut_otherwise(make: Make) -> None:
    giver, other = make(), make(block_size=8)
    assert giver.prefixes.copy(ask(giver, asked("c"))) is None, "nothing is cached"
    ran(giver, asked("a"))
    assert giver.prefixes.copy(ask(other, asked("c"))) is None
    assert giver.prefixes.copy(ask(giver, asked("c"), WHOLE)) is None, "it has all of it"
    assert giver.prefixes.copy(replace_model(ask(giver, asked("c")))) is None
    assert make(evicted_kv_bytes=0).prefixes.find("another", TEXT) == (0, 0)
    assert giver.stats().evicted_kv_bytes == 0


def replace_model(one: PrefixAsk) -> PrefixAsk:
    return PrefixAsk(one.request_id, 0, "another", "", one.kv_format, one.token_ids, 0)


def test_a_copy_is_bounded_by_host_memory_and_in_bytes(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    size = block_bytes(make())
    full = make(evicted_kv_bytes=size)
    ran(full, asked("a"))
    assert full.prefixes.copy(ask(full, asked("c"))) is None
    monkeypatch.setattr(prefix_exchange, "MAX_PREFIX_BYTES", 3 * size + 1)
    giver, taker = make(), make()
    ran(giver, asked("a"))
    copy = giver.prefixes.copy(ask(taker, asked("c")))
    assert copy is not None
    assert taker.prefixes.take_in(asked("c"), copy.data) == 3 * BLOCK
    assert ran(taker, asked("c"))[2] == 3 * BLOCK


def test_what_cannot_be_used_changes_nothing(make: Make) -> None:
    giver, taker = make(), make()
    ran(giver, asked("a"))
    whole = giver.prefixes.copy(ask(taker, asked("c")))
    rest = giver.prefixes.copy(ask(taker, asked("c"), 16))
    assert whole is not None
    assert rest is not None
    payload = asked("c")
    wrong: list[tuple[bytes | memoryview, str]] = [
        (b"", "does not decode"),
        (whole.data[:-1], "does not decode"),
        (memoryview(whole.data)[1:], "bytes instead|has .* bytes"),
        (whole.data[:40], "does not decode"),
        (rest.data, "has gone"),
    ]
    for data, reason in wrong:
        with pytest.raises(ImageError, match=reason):
            taker.prefixes.take_in(payload, data)
    with pytest.raises(ImageError, match="of a prompt of 40 tokens"):
        taker.prefixes.take_in(asked("c", TEXT[:40]), whole.data)
    with pytest.raises(ImageError, match="here they are"):
        make(block_size=8).prefixes.take_in(payload, whole.data)
    with pytest.raises(ImageError, match="not loaded"):
        taker.prefixes.take_in(replace(payload, model="another"), whole.data)
    taker.check()
    assert taker.prefixes.find("tiny", TEXT) == (0, 0)


def test_without_memory_for_all_of_it_the_beginning_is_taken(make: Make) -> None:
    """The taker has 32 blocks, which one sequence of full length needs; another request holds 28 of them."""
    giver = make()
    taker = make(kv_cache_bytes=32 * block_bytes(giver), async_scheduling=False)
    ran(giver, asked("a"))
    taker.add(asked("x", prompt(3, 27 * BLOCK + 1)))
    taker.step(0.0)
    copy = giver.prefixes.copy(ask(taker, asked("c")))
    assert copy is not None
    assert taker.prefixes.take_in(asked("c"), copy.data) == 4 * BLOCK
    taker.check()


PRESSURES: list[dict[str, Any]] = [
    {"preemption": "swap", "host_kv_bytes": MIB},
    {"preemption": "adaptive", "host_kv_bytes": MIB},
    {"preemption": "recompute", "async_scheduling": False},
    {"preemption": "swap", "host_kv_bytes": MIB, "tiers": TierOptions(host_bytes=MIB)},
]


@pytest.mark.parametrize("kind", ["cpu"])  # whose rows have the same bits in any batch
@pytest.mark.parametrize("pressure", PRESSURES, ids=["swap", "adaptive", "recompute", "tiers"])
def test_under_pressure_and_at_any_time_no_token_changes(make: Make, pressure: dict[str, Any]) -> None:
    """Two engines with too little memory exchange what they have at random, at once or some steps late."""
    chance, alone = Random(str(sorted(map(str, pressure)))), make()
    texts = [prompt(number, 60) for number in range(3)]
    payloads = [
        asked(str(number), [*chance.choice(texts)[: chance.randrange(20, 60)], *prompt(number, 3)])
        for number in range(24)
    ]
    expected = {payload.request_id: ran(alone, payload)[0] for payload in payloads}
    engines = [
        make(kv_cache_bytes=40 * block_bytes(alone), max_num_seqs=6, admission="greedy", **pressure) for _ in range(2)
    ]
    found: dict[str, list[int]] = {name: [] for name in expected}
    left, on_their_way, num_tokens = list(payloads), [], 0
    while left or any(engine.has_work for engine in engines):
        giver, taker = chance.sample(engines, 2)
        if left and chance.random() < 0.7:
            taker.add(left.pop())
        wanted = chance.choice(payloads)
        copy = giver.prefixes.copy(ask(taker, wanted, taker.prefixes.find("tiny", wanted.prompt_token_ids)[0]))
        if copy is not None:
            on_their_way.append((taker, wanted, copy.data))
            giver.release([copy.number])
        if on_their_way and chance.random() < 0.7:
            one, payload, data = on_their_way.pop(chance.randrange(len(on_their_way)))
            with suppress(ImageError):  # what it goes on from has been given up, or late copies wait
                num_tokens += one.prefixes.take_in(payload, data)
        for engine in engines:
            for chunk in engine.step(0.0):
                found[chunk.request_id] += chunk.token_ids
            engine.check()
    assert found == expected
    assert num_tokens > 100, "some came"
    assert sum(engine.num_preemptions for engine in engines) > 0, "memory was too little"
