"""How models divide KV memory: what one gets alone, what several share, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_node.engine.border.executor import ModelTooLargeError
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.sizing import cut, loaded_model
from gpu_node.models.checkpoint import open_checkpoint
from shared.config.engines.engine import EngineOptions, ModelSpec
from tests.e2e.wide_model import write_wide_model

MIB = 1 << 20


def model(
    token_bytes: int, kv_cache_bytes: int, max_models: int, max_model_len: int | None = 64, **more: int
) -> LoadedModel:
    options = EngineOptions(kv_cache_bytes=kv_cache_bytes, max_models=max_models, **more)  # type: ignore[arg-type]
    return cut("m", options, token_bytes=token_bytes, max_model_len=max_model_len, vocab_size=100)


def test_alone_a_model_gets_all_blocks_that_fit() -> None:
    alone = model(token_bytes=1000, kv_cache_bytes=MIB, max_models=1)
    assert alone.block_bytes == 16_000
    assert (alone.num_blocks, alone.num_pages, alone.max_request_blocks) == (65, 1, 65)
    assert (alone.num_reserved_pages, alone.num_host_blocks) == (1, 0)


def test_blocks_begin_with_a_line_of_the_cache() -> None:
    assert model(token_bytes=3, kv_cache_bytes=MIB, max_models=1).block_bytes == 64


def test_several_models_cut_the_same_pages() -> None:
    shared = model(token_bytes=8192, kv_cache_bytes=10 * MIB, max_models=2, host_kv_bytes=3 * MIB)
    assert (shared.num_pages, shared.blocks_per_page, shared.num_blocks) == (5, 16, 80)
    assert shared.max_request_blocks == 2 * 16  # an equal part, in whole pages
    assert shared.num_reserved_pages == 1  # 64 tokens are 4 blocks
    assert (shared.num_host_pages, shared.num_host_blocks) == (1, 16)


def test_blocks_that_leave_too_much_of_a_page_are_refused() -> None:
    with pytest.raises(ModelTooLargeError, match="blocks of 1600000 bytes leave 24% of a page of 2097152"):
        model(token_bytes=100_000, kv_cache_bytes=16 * MIB, max_models=2)
    assert model(token_bytes=100_000, kv_cache_bytes=16 * MIB, max_models=1).num_blocks == 10


def test_one_sequence_of_full_length_has_to_fit_into_an_equal_part() -> None:
    assert model(token_bytes=8192, kv_cache_bytes=4 * MIB, max_models=2, max_model_len=256).num_reserved_pages == 1
    with pytest.raises(ModelTooLargeError, match=r"needs 2228224 bytes .* is 4194304 for 2 models \(16 blocks\)"):
        model(token_bytes=8192, kv_cache_bytes=4 * MIB, max_models=2, max_model_len=257)


def test_where_nothing_is_said_a_sequence_is_as_long_as_context_and_memory_allow() -> None:
    def length(kv_cache_bytes: int, max_models: int, context_length: int) -> int:
        options = EngineOptions(kv_cache_bytes=kv_cache_bytes, max_models=max_models)
        return cut(
            "m", options, token_bytes=8192, max_model_len=None, vocab_size=100, context_length=context_length
        ).max_model_len

    assert length(4 * MIB, 1, context_length=400) == 400
    assert length(4 * MIB, 1, context_length=4000) == 512
    assert length(10 * MIB, 2, context_length=4000) == 512, "two of five pages"
    assert length(4 * MIB, 1, context_length=8) == 8


def test_memory_for_no_request_at_all_is_too_little() -> None:
    with pytest.raises(ModelTooLargeError, match=r"one sequence of 16 tokens needs 1600000 bytes .* \(0 blocks\)"):
        model(token_bytes=100_000, kv_cache_bytes=MIB, max_models=1, max_model_len=None)


@pytest.fixture(scope="module")
def small_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a model that is made without tensors of torch."""
    return write_wide_model(tmp_path_factory.mktemp("small") / "small.gguf")


@pytest.mark.parametrize(("checks_guesses", "is_on", "most"), [(True, True, 16), (True, False, 0), (False, True, 0)])
def test_structured_output_is_guessed_where_guesses_are_checked_and_nobody_forbids_it(
    small_file: Path, checks_guesses: bool, is_on: bool, most: int
) -> None:
    """NVIDIA and predicted devices check none."""
    options = EngineOptions(kv_cache_bytes=MIB, structured_guesses=is_on)
    config = open_checkpoint(small_file).config
    loaded = loaded_model(ModelSpec("m", str(small_file)), config, options, 2, "", checks_guesses=checks_guesses)
    assert (loaded.max_structured_tokens, loaded.max_draft_tokens) == (most, 0)
