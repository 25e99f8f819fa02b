"""Conversations get the tokens that they get without tiers, and little of their history is computed again."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import LlamaForCausalLM

from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.messages.prefixes.partitions import partition_of
from tests.gpu_node.adapter_folders import ALL, save_adapter
from tests.gpu_node.engine.tiers.conversations import (
    ANSWER_TOKENS,
    BLOCK_SIZE,
    MESSAGE_TOKENS,
    NUM_TURNS,
    NUM_USERS,
    engine,
    host,
    host_ssd,
    make_model,
)

pytestmark = pytest.mark.slow

TURN_TOKENS = MESSAGE_TOKENS + ANSWER_TOKENS
PROMPT_TOKENS = NUM_USERS * sum(turn * TURN_TOKENS + MESSAGE_TOKENS for turn in range(NUM_TURNS))
FULL_TURN_TOKENS = [(turn * TURN_TOKENS - 1) // BLOCK_SIZE * BLOCK_SIZE for turn in range(NUM_TURNS)]
FULL_HISTORY_TOKENS = NUM_USERS * sum(FULL_TURN_TOKENS[1:])
"""Of full blocks: the last token of an answer is never computed, and a block that is not full is not kept."""


@pytest.fixture(scope="module", params=["reference", "cpu"])
def executor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def path(executor: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp(executor), executor)


@pytest.fixture(scope="module")
def plain(executor: str, path: Path) -> list[list[list[int]]]:
    """Without tiers: the device has given most of the histories up when their users come back."""
    with engine(path, executor) as kept:
        answers = kept.play()
        counts = kept.engine.counts
    assert counts.first_queried_tokens == PROMPT_TOKENS
    assert counts.first_cached_tokens < FULL_HISTORY_TOKENS / 3
    return answers


@pytest.mark.parametrize("ahead", [False, True])
def test_with_host_memory_all_full_blocks_are_found(
    executor: str, path: Path, plain: list[list[list[int]]], ahead: bool
) -> None:
    with engine(path, executor, host(), ahead=ahead) as kept:
        assert kept.play() == plain
        counts = kept.engine.counts
    assert counts.first_cached_tokens == FULL_HISTORY_TOKENS
    assert 0 < counts.kept.host_tokens <= FULL_HISTORY_TOKENS
    assert counts.kept.num_lost_blocks == 0


def test_what_host_memory_gives_up_comes_back_from_the_ssd(
    executor: str, path: Path, plain: list[list[list[int]]], tmp_path: Path
) -> None:
    with engine(path, executor, host_ssd(tmp_path, host_bytes=1 << 20)) as kept:
        assert kept.play() == plain
        counts = kept.engine.counts
    assert counts.first_cached_tokens == FULL_HISTORY_TOKENS
    assert counts.kept.store_tokens > 0
    assert (counts.kept.num_failed, counts.kept.num_damaged, counts.kept.num_late) == (0, 0, 0)


def test_after_a_restart_the_ssd_has_what_was_written(
    executor: str, path: Path, plain: list[list[list[int]]], tmp_path: Path
) -> None:
    with engine(path, executor, host_ssd(tmp_path)) as before:
        assert before.play(range(NUM_TURNS - 1)) == plain[:-1]
        num_written = before.engine.counts.kept.num_written
    with engine(path, executor, host_ssd(tmp_path)) as after:
        after.histories = before.histories
        assert after.store is not None
        after.store.settle()
        assert after.store.num_blocks == num_written
        assert after.play(range(NUM_TURNS - 1, NUM_TURNS)) == plain[-1:]
        counts = after.engine.counts
    assert counts.first_cached_tokens == counts.kept.store_tokens == NUM_USERS * FULL_TURN_TOKENS[-1]


def test_after_a_restart_a_partition_finds_what_was_written_for_it_alone(
    executor: str, path: Path, plain: list[list[list[int]]], tmp_path: Path
) -> None:
    with engine(path, executor, host_ssd(tmp_path)) as before:
        before.partition = partition_of("", "a")
        assert before.play(range(NUM_TURNS - 1)) == plain[:-1]
    found = []
    for partition in ("", partition_of("", "b"), partition_of("", "a")):
        with engine(path, executor, host_ssd(tmp_path)) as after:
            assert after.store is not None
            after.store.settle()
            after.histories, after.partition = deepcopy(before.histories), partition
            assert after.play(range(NUM_TURNS - 1, NUM_TURNS)) == plain[-1:]
            found.append(after.engine.counts.first_cached_tokens)
    assert found == [0, 0, NUM_USERS * FULL_TURN_TOKENS[-1]]


def test_a_second_name_of_the_same_weights_finds_what_the_first_has_written(
    executor: str, path: Path, plain: list[list[list[int]]], tmp_path: Path
) -> None:
    with engine(path, executor, host_ssd(tmp_path)) as before:
        before.play(range(NUM_TURNS - 1))
    with engine(path, executor, host_ssd(tmp_path)) as after:
        assert after.store is not None
        after.store.settle()
        after.histories = before.histories
        model = after.engine.model
        assert model is not None
        assert model.salt != replace(model, name="m", kv_identity="").salt, "its own, and not that of its name"
        assert after.play(range(NUM_TURNS - 1, NUM_TURNS)) == plain[-1:]
        assert after.engine.counts.kept.store_tokens > 0


@pytest.mark.parametrize("executor", ["reference"], indirect=True)
def test_adapters_come_and_go_above_the_ssd(
    executor: str, path: Path, plain: list[list[list[int]]], tmp_path: Path
) -> None:
    """What lies there is named by all weights of a model, and is found when they are again what they were."""
    merged = LlamaForCausalLM.from_pretrained(path)
    save_adapter(merged, tmp_path / "legal", ALL)
    bare = ModelSpec(name="m", source=str(path), max_model_len=96)
    adapted = replace(bare, adapters=(AdapterSpec("legal", str(tmp_path / "legal")),))
    with engine(path, executor, host_ssd(tmp_path / "ssd", host_bytes=1 << 20)) as kept:
        for number, spec in enumerate((bare, adapted, adapted, bare)):
            kept.engine.load_model(spec)
            before = kept.engine.counts.kept.store_tokens
            assert kept.turn(number, settles=True) == plain[number]
        counts = kept.engine.counts
    assert (counts.kept.num_failed, counts.kept.num_damaged, counts.kept.num_late) == (0, 0, 0)
    assert counts.kept.store_tokens > before, "what was written first"
