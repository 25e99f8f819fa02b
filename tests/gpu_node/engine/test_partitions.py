"""Requests of several partitions in one engine: each finds what its own partition has, wherever that lies.

And each gets the tokens that it gets alone: nothing but what is computed again tells partitions apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from transformers import LlamaForCausalLM

from gpu_node.engine.engine import Engine
from gpu_node.engine.requests.image import BlockFormat, ImageError
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.config.engines.tiers import TierOptions
from shared.messages.prefixes.partitions import partition_of
from shared.messages.prefixes.prefix_ask import PrefixAsk
from shared.messages.requests.payload import Payload
from tests.gpu_node import tiny
from tests.gpu_node.adapter_folders import ALL, save_adapter
from tests.gpu_node.engine.tiny_engines import BLOCK, MIB, Make, tiny_engines
from tests.gpu_node.workload import prompt, request

TEXT = prompt(1, 42)
WHOLE = 40
"""Tokens of its whole blocks."""

PARTITIONS = ("", partition_of("", "a"), partition_of("", "b"), partition_of("acme", ""), partition_of("acme", "a"))


@pytest.fixture(params=["reference", "cpu"])
def make(request: pytest.FixtureRequest, tiny_path: Path) -> Iterator[Make]:
    with tiny_engines(str(request.param), tiny_path) as make:
        yield make


def asked(name: str, partition: str, text: list[int] = TEXT, **more: Any) -> Payload:
    return replace(request(name, text, 12, temperature=0.0, ignore_eos=True), partition=partition, **more)


def ran(engine: Engine, payload: Payload, image: bytes = b"") -> tuple[list[int], int | None]:
    """Tokens, and how many of the prompt were cached."""
    assert engine.add(payload, *([image] if image else [])) == []
    chunks = [chunk for chunks in tiny.steps(engine) for chunk in chunks]
    engine.check()
    return [token for chunk in chunks for token in chunk.token_ids], chunks[0].cached_tokens


def test_a_prompt_is_found_by_its_own_partition_alone(make: Make) -> None:
    engine, alone = make(), ran(make(), asked("alone", ""))[0]
    found = [ran(engine, asked(f"{again} {one}", one)) for again in range(2) for one in PARTITIONS]
    assert [tokens for tokens, _ in found] == [alone] * 10
    assert [cached for _, cached in found] == [0] * 5 + [WHOLE] * 5


def test_an_adapter_s_blocks_are_parted_like_the_model_s(
    make: Make, tiny_model: LlamaForCausalLM, tiny_path: Path, tmp_path: Path
) -> None:
    save_adapter(tiny_model, tmp_path / "legal", ALL, rank=6, seed=1)
    adapters = (AdapterSpec("legal", str(tmp_path / "legal")),)
    engine = make(ModelSpec(name="tiny", source=str(tiny_path), max_model_len=tiny.CONTEXT, adapters=adapters))
    whose = [(adapter, one) for adapter in ("", "legal") for one in PARTITIONS[:3]]
    found = [
        ran(engine, asked(f"{again} {whose.index((adapter, one))}", one, adapter=adapter))[1]
        for again in range(2)
        for adapter, one in whose
    ]
    assert found == [0] * 6 + [WHOLE] * 6


def test_what_has_left_the_device_is_found_in_host_memory_by_its_own_alone(make: Make) -> None:
    model = make().model
    assert model is not None
    engine = make(kv_cache_bytes=36 * model.block_bytes, tiers=TierOptions(host_bytes=MIB))
    ours, theirs = PARTITIONS[1:3]
    ran(engine, asked("a", ours))
    ran(engine, asked("x", ours, prompt(3, 100)))
    owners = asked("", ours).owner, asked("", theirs).owner
    on_device, in_all = engine.prefixes.find("tiny", TEXT, owners[0])
    assert 0 < on_device < in_all == WHOLE
    assert engine.prefixes.find("tiny", TEXT, owners[1]) == engine.prefixes.find("tiny", TEXT) == (0, 0)
    assert [ran(engine, asked(name, one))[1] for name, one in (("b", theirs), ("c", ""), ("d", ours))] == [0, 0, WHOLE]
    assert engine.counts.kept.host_tokens > 0


def test_an_evicted_request_goes_on_elsewhere_in_its_partition(make: Make) -> None:
    ours, theirs = PARTITIONS[1:3]
    payload = asked("a", ours)
    one, other = make(), make()
    expected = ran(make(), asked("alone", ""))[0]
    one.add(payload)
    tokens = [token for _ in range(6) for chunk in one.step(0.0) for token in chunk.token_ids]
    tokens += [token for chunk in one.evict([payload.request_id])[0] for token in chunk.token_ids]
    (image,) = one.hand_over([payload.request_id])
    ran(other, asked("x", theirs))
    tokens += ran(other, payload, image.data)[0]
    assert tokens == expected
    assert [ran(other, asked(name, of))[1] for name, of in (("b", ours), ("c", PARTITIONS[3]), ("d", ""))] == [
        WHOLE,
        0,
        0,
    ]


def ask(engine: Engine, payload: Payload) -> PrefixAsk:
    """What a node with such an engine asks another."""
    assert engine.model is not None
    name = BlockFormat.of(engine.model).name
    whose = {"adapter": payload.adapter, "partition": payload.partition}
    return PrefixAsk(
        payload.request_id, 0, "tiny", kv_format=name, token_ids=payload.prompt_token_ids, from_token=0, **whose
    )


def test_another_node_reads_what_is_of_its_own_partition(make: Make) -> None:
    ours, theirs = PARTITIONS[1:3]
    giver, taker = make(), make()
    ran(giver, asked("a", ours))
    assert giver.prefixes.copy(ask(taker, asked("c", theirs))) is None
    assert giver.prefixes.copy(ask(taker, asked("c", ""))) is None
    copy = giver.prefixes.copy(ask(taker, asked("c", ours)))
    assert copy is not None
    for wrong in (theirs, ""):
        with pytest.raises(ImageError, match="of another prompt"):
            taker.prefixes.take_in(asked("c", wrong), copy.data)
    assert taker.prefixes.take_in(asked("c", ours), copy.data) == WHOLE
    assert [ran(taker, asked(name, one))[1] for name, one in (("b", theirs), ("c", ""), ("d", ours))] == [0, 0, WHOLE]


def test_what_a_node_of_an_older_version_gives_is_not_taken(make: Make) -> None:
    """It has not heard of partitions, and gives what all share."""
    giver, taker = make(), make()
    ran(giver, asked("a", ""))
    payload = asked("c", PARTITIONS[1])
    copy = giver.prefixes.copy(replace(ask(taker, payload), partition=""))
    assert copy is not None
    with pytest.raises(ImageError, match="of another prompt"):
        taker.prefixes.take_in(payload, copy.data)
    assert ran(taker, payload)[1] == 0


@pytest.mark.parametrize("preemption", ["swap", "recompute"])
def test_in_any_order_and_under_pressure_nothing_is_found_across_partitions(make: Make, preemption: str) -> None:
    """Each text is sent in one partition alone, beside texts of others that begin alike: only those count as cached."""
    model = make().model
    assert model is not None
    chance = Random(preemption)
    engine = make(
        kv_cache_bytes=60 * model.block_bytes,
        max_num_seqs=6,
        admission="greedy",
        preemption=preemption,
        host_kv_bytes=MIB,
        tiers=TierOptions(host_bytes=MIB),
    )
    payloads = [
        asked(str(number), PARTITIONS[number % 5], [*TEXT[: chance.randrange(8, 40)], *prompt(number, 3)])
        for number in range(40)
    ]
    expected = {one.request_id: ran(make(), one)[0] for one in payloads[:5]}
    found: dict[str, list[int]] = {one.request_id: [] for one in payloads}
    sent: dict[str, int] = dict.fromkeys(PARTITIONS, 0)
    left, num_cached = list(payloads), 0
    while left or engine.has_work:
        if left and chance.random() < 0.5:
            payload = left.pop(0)
            most = min(sent[payload.partition], len(payload.prompt_token_ids)) // BLOCK * BLOCK
            assert engine.prefixes.find("tiny", payload.prompt_token_ids, payload.owner)[1] <= most
            sent[payload.partition] = max(sent[payload.partition], len(payload.prompt_token_ids) + 12)
            engine.add(payload)
        for chunk in engine.step(0.0):
            found[chunk.request_id] += chunk.token_ids
            num_cached += chunk.cached_tokens or 0
        engine.check()
    assert {name: found[name] for name in expected} == expected
    assert num_cached > 0, "some was found, within a partition"
