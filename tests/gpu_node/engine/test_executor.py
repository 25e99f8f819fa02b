"""The engine computes what `transformers` computes, whatever the scheduling does to the order of the work."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from gpu_node.engine.border.executor import ModelTooLargeError
from gpu_node.engine.border.plan import BlockCopy, Draw, ScheduledSequence, StepPlan
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.requests.payload import Sampling
from tests.gpu_node import tiny

GREEDY = Sampling(max_tokens=8, temperature=0.0)


def prompts(num_prompts: int, longest: int = 40) -> list[list[int]]:
    numbers = random.Random(3)
    return [[numbers.randrange(3, tiny.VOCAB) for _ in range(numbers.randint(1, longest))] for _ in range(num_prompts)]


def part(token_ids: list[int], start: int, table: list[int], sequence_id: int = 0) -> ScheduledSequence:
    return ScheduledSequence(sequence_id, tuple(token_ids), start, tuple(table), (Draw(sequence_id, GREEDY, 0),))


def load(path: Path, block_size: int) -> ReferenceExecutor:
    executor = ReferenceExecutor(EngineOptions(block_size=block_size, kv_cache_bytes=1 << 20))
    executor.load_model(ModelSpec(name="tiny", source=str(path), max_model_len=tiny.CONTEXT))
    return executor


def reference_logits(model: LlamaForCausalLM, token_ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([token_ids])).logits
    return logits[0, -1]


@pytest.mark.parametrize("block_size", [1, 3, 16])
def test_logits_of_a_mixed_batch_equal_those_of_transformers(
    tiny_model: LlamaForCausalLM, tiny_path: Path, block_size: int
) -> None:
    executor = load(tiny_path, block_size)
    texts = prompts(3)
    num_blocks = -(-41 // block_size)
    tables = [list(range(number * num_blocks, (number + 1) * num_blocks))[::-1] for number in range(3)]
    with torch.inference_mode():
        first = executor.logits([part(texts[0], 0, tables[0], 0), part(texts[1][:1], 0, tables[1], 1)])
        # one decodes, one goes on with its prefill, one begins
        second = executor.logits(
            [part([5], len(texts[0]), tables[0], 0), part(texts[1][1:], 1, tables[1], 1), part(texts[2], 0, tables[2])]
        )
    expected = [texts[0], texts[1][:1], [*texts[0], 5], texts[1], texts[2]]
    for ours, token_ids in zip([*first, *second], expected, strict=True):
        torch.testing.assert_close(ours, reference_logits(tiny_model, token_ids), rtol=1e-4, atol=1e-4)


def test_an_embedding_that_is_not_tied_has_a_head_of_its_own(tmp_path: Path) -> None:
    model = tiny.make_model(seed=5, tied=False)
    path = tiny.write_gguf(tmp_path / "untied.gguf", tiny.tensors_of(model, tied=False))
    with torch.inference_mode():
        (ours,) = load(path, 4).logits([part([5, 6, 7], 0, [2])])
    torch.testing.assert_close(ours, reference_logits(model, [5, 6, 7]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("block_size", "step_tokens", "max_num_seqs"), [(1, 256, 8), (4, 256, 8), (16, 7, 8), (16, 1, 3), (5, 16, 2)]
)
def test_greedy_tokens_do_not_depend_on_blocks_chunks_and_batch(
    tiny_model: LlamaForCausalLM, tiny_path: Path, block_size: int, step_tokens: int, max_num_seqs: int
) -> None:
    engine = tiny.make_engine(tiny_path, block_size, step_tokens, max_num_seqs)
    texts = prompts(6)
    outputs = tiny.run(engine, [tiny.request(str(number), text, 8) for number, text in enumerate(texts)])
    assert outputs == [tiny.greedy(tiny_model, text, 8)[0] for text in texts]


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_greedy_tokens_do_not_depend_on_preemption(
    tiny_model: LlamaForCausalLM, tiny_path: Path, preemption: str
) -> None:
    # 1 MiB is 4,096 tokens: 48 requests of 101 to 124 tokens do not fit, but the engine has seen only short ones
    engine = tiny.make_engine(tiny_path, block_size=4, max_num_seqs=48, preemption=preemption, host_kv_bytes=1 << 20)
    tiny.run(engine, [tiny.request(f"short-{number}", [number], 1) for number in range(64)])
    texts = prompts(48, longest=24)
    outputs = tiny.run(engine, [tiny.request(str(number), text, 100) for number, text in enumerate(texts)])
    assert engine.num_preemptions > 0
    for text, output in list(zip(texts, outputs, strict=True))[-4:]:  # the newest were preempted
        assert output == tiny.greedy(tiny_model, text, 100)[0]


def test_greedy_tokens_do_not_depend_on_a_prefix_hit(tiny_model: LlamaForCausalLM, tiny_path: Path) -> None:
    engine = tiny.make_engine(tiny_path, block_size=4)
    common = prompts(1)[0][:1] + list(range(20, 40))
    texts = [[*common, number] for number in range(50, 53)]
    first = tiny.run(engine, [tiny.request("first", common, 8)])
    assert first == [tiny.greedy(tiny_model, common, 8)[0]]
    outputs = tiny.run(engine, [tiny.request(str(number), text, 8) for number, text in enumerate(texts)])
    assert outputs == [tiny.greedy(tiny_model, text, 8)[0] for text in texts]


@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"temperature": 1.0, "seed": 11, "top_p": 0.95}])
def test_a_request_resumed_on_another_engine_goes_on_as_if_never_interrupted(
    tiny_path: Path, sampling: dict[str, Any]
) -> None:
    text = prompts(1)[0]
    (whole,) = tiny.run(tiny.make_engine(tiny_path), [tiny.request("a", text, 12, **sampling)])
    (rest,) = tiny.run(tiny.make_engine(tiny_path), [tiny.request("a", text, 12, output=whole[:5], **sampling)])
    assert whole[:5] + rest == whole
    assert len(whole) == 12


def test_a_sampled_request_draws_the_same_alone_and_in_a_batch(tiny_path: Path) -> None:
    payloads = [
        tiny.request(str(number), text, 10, temperature=0.9, seed=number, top_k=40)
        for number, text in enumerate(prompts(5))
    ]
    together = tiny.run(tiny.make_engine(tiny_path, block_size=3, step_tokens=9), payloads)
    assert together == [tiny.run(tiny.make_engine(tiny_path), [payload])[0] for payload in payloads]


def test_copied_blocks_hold_what_their_source_held_before_the_step(
    tiny_model: LlamaForCausalLM, tiny_path: Path
) -> None:
    executor = load(tiny_path, block_size=4)
    executor.submit(StepPlan((part([5, 6, 7], 0, [0]),)))
    # block 0 is copied and at once overwritten by another sequence
    plan = StepPlan((part([8], 3, [1], 0), part([9, 10], 0, [0], 1)), (BlockCopy(0, 1),))
    outcome = executor.submit(plan).result()
    assert outcome.token_ids == {
        0: tiny.greedy(tiny_model, [5, 6, 7, 8], 1)[0][0],
        1: tiny.greedy(tiny_model, [9, 10], 1)[0][0],
    }


def test_a_cache_too_small_for_one_sequence_is_refused_with_both_numbers(tiny_path: Path) -> None:
    executor = ReferenceExecutor(EngineOptions(kv_cache_bytes=1 << 20, block_size=256))
    spec = ModelSpec(name="tiny", source=str(tiny_path), max_model_len=tiny.CONTEXT)
    assert executor.load_model(spec).num_blocks == (1 << 20) // (256 * tiny.BLOCK_TOKEN_BYTES)
    wide = tiny.BLOCK_TOKEN_BYTES * 16
    with pytest.raises(ModelTooLargeError, match=rf"needs {8 * wide} bytes.*kv_cache_bytes is {7 * wide} \(7 blocks\)"):
        ReferenceExecutor(EngineOptions(block_size=16, kv_cache_bytes=7 * wide)).load_model(spec)
