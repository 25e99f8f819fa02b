"""The CUDA executor draws what the reference executor draws, however memory runs out and whatever is shared.

In float32, so that both compute the same up to the order of sums; how kernels round is tested by itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_node.engine.border.executor import Executor
from gpu_node.engine.border.plan import BlockCopy, BlockSwap, Draw, ScheduledSequence, StepPlan
from gpu_node.engine.engine import Engine
from gpu_node.executors.cuda.draws import MaskedStep, QueuedStep
from gpu_node.executors.cuda.executor import CudaExecutor
from gpu_node.executors.draws.not_finite import NOT_FINITE
from gpu_node.executors.reference.executor import ReferenceExecutor
from gpu_node.graph.passes.offload.polls import insert_polls
from gpu_node.graph.passes.offload.split import even_plan, split_operators
from gpu_node.graph.program import Program
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.files.model_file import ModelFileError
from shared.messages.requests.payload import Payload, Sampling
from tests.gpu_node import tiny
from tests.gpu_node.kernels.triton.buffers import DEVICE, FLOAT32_ERROR
from tests.gpu_node.masks import mask_of
from tests.gpu_node.models.test_families_models import FAMILIES, save, save_config
from tests.gpu_node.workload import answers, prompt, request

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")

GREEDY = Sampling(max_tokens=8, temperature=0.0)
OPTIONS = EngineOptions(kv_cache_bytes=1 << 20, block_size=4)


def spec(path: Path, name: str = "tiny", **options: Any) -> ModelSpec:
    return ModelSpec(name=name, source=str(path), **{"max_model_len": 32} | options)


def executor(path: Path, **options: Any) -> CudaExecutor:
    made = CudaExecutor(EngineOptions(**{"kv_cache_bytes": 1 << 20} | options), DEVICE, dtype=torch.float32)
    made.load_model(spec(path))
    return made


def engine(made: Executor, path: Path, options: EngineOptions) -> Engine:
    found = Engine(made, options)
    found.load_model(spec(path))
    return found


def check_answers(path: Path, payloads: list[Payload], **options: Any) -> Engine:
    """Both executors, asked the same; the engine of the CUDA executor.

    Engines that have seen outputs of one token only admit more than there is room for.
    """
    chosen = EngineOptions(**{"kv_cache_bytes": 1 << 20, "block_size": 4} | options)
    plain = engine(ReferenceExecutor(chosen), path, chosen)
    ours = engine(CudaExecutor(chosen, DEVICE, dtype=torch.float32), path, chosen)
    for asked in ([request("short", [5], 1)], payloads):
        assert answers(ours, asked) == answers(plain, asked)
    return ours


def part(token_ids: list[int], start: int, table: list[int], sampling: Sampling = GREEDY) -> ScheduledSequence:
    return ScheduledSequence(0, tuple(token_ids), start, tuple(table), (Draw(0, sampling, 0),))


class Counting(CudaExecutor):
    """Notes how many rows its steps have."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.nums_rows: list[int] = []

    def submit(self, plan: StepPlan) -> QueuedStep | MaskedStep:
        self.nums_rows.append(plan.num_tokens)
        return super().submit(plan)


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_each_family_gives_the_tokens_of_the_reference(family: str, tmp_path: Path) -> None:
    save(family, tmp_path)
    payloads = [
        request("greedy", prompt(1, 7), 3, temperature=0.0, ignore_eos=True),
        request("forks", prompt(2, 3), 3, seed=4, num_choices=2, ignore_eos=True),
    ]
    check_answers(tmp_path, payloads)


@pytest.mark.skipif(DEVICE.type == "cuda", reason="a device's generator makes other weights than the CPU's")
def test_weights_that_are_made_up_are_those_of_the_reference(tmp_path: Path) -> None:
    save_config("llama-llama3", tmp_path)
    asked = [request("sampled", prompt(1, 7), 4, temperature=1.0, seed=1, ignore_eos=True)]
    found = []
    for made in (ReferenceExecutor(OPTIONS), CudaExecutor(OPTIONS, DEVICE, dtype=torch.float32)):
        engine = Engine(made, OPTIONS)
        engine.load_model(spec(tmp_path, load_format="dummy"))
        found.append(answers(engine, asked))
    assert found[0] == found[1]


def test_where_memory_runs_out_and_beams_fork(tmp_path: Path) -> None:
    """32 tokens have so many keys and values that they fill the least memory that can be given.

    By swapping: where a sequence is computed again, an executor sees nothing but prompts.
    """
    save("llama", tmp_path, num_hidden_layers=2, num_key_value_heads=4, head_dim=512)
    kinds: list[dict[str, Any]] = [
        {"temperature": 0.9, "top_k": 20, "num_logprobs": 2, "ignore_eos": True},
        {"is_beam": True, "num_candidates": 2, "num_choices": 2},
        {"temperature": 0.7, "presence_penalty": 1.0, "repetition_penalty": 1.3, "ignore_eos": True},
    ]
    payloads = [request(str(number), prompt(number, 4), 6, seed=number, **kind) for number, kind in enumerate(kinds)]
    found = check_answers(tmp_path, payloads, host_kv_bytes=1 << 20, preemption="swap")
    assert found.num_preemptions > 0


def test_a_prompt_in_chunks_and_a_prefix_that_is_there_already(tiny_path: Path) -> None:
    common = prompt(1, 13)
    first, second = request("first", common, 3, temperature=0.0), request("second", [*common, 5], 3, temperature=0.0)
    options = EngineOptions(kv_cache_bytes=1 << 20, block_size=4, step_tokens=6)
    plain = engine(ReferenceExecutor(options), tiny_path, options)
    made = Counting(options, DEVICE, dtype=torch.float32)
    ours = engine(made, tiny_path, options)
    assert answers(ours, [first]) == answers(plain, [first])
    assert made.nums_rows[:4] == [6, 6, 1, 1]
    made.nums_rows.clear()
    assert answers(ours, [second]) == answers(plain, [second])
    assert made.nums_rows[0] == 2  # of 14 tokens, the 12 that fill blocks are there


def test_plain_split_and_optimized_programs_give_the_same(tiny_path: Path) -> None:
    def split(program: Program) -> Program:
        return split_operators(program, even_plan(program, 2))

    options = EngineOptions(kv_cache_bytes=1 << 20)
    found = []
    for optimize, passes in ((True, ()), (False, ()), (True, (split,))):
        made = CudaExecutor(options, DEVICE, dtype=torch.float32, optimize=optimize, passes=passes)
        made.load_model(spec(tiny_path))
        found.append(made.logits([part(prompt(1, 5), 0, [3]), part([9], 0, [4])]))
    for other in found[1:]:
        assert float((other - found[0]).norm() / found[0].norm()) < FLOAT32_ERROR


def test_polls_change_no_answer(tiny_path: Path) -> None:
    """What they serve is in test_cuda_graphs.py, and between engines in tests/gpu_node/offload."""
    options = EngineOptions(kv_cache_bytes=1 << 20)
    plain, polled = executor(tiny_path), CudaExecutor(options, DEVICE, dtype=torch.float32, passes=(insert_polls,))
    polled.load_model(spec(tiny_path))
    parts = [part([9], 0, [4])]
    assert polled.logits(parts).equal(plain.logits(parts))


def test_blocks_are_swapped_out_copied_and_swapped_in_between_steps(tiny_path: Path) -> None:
    made = executor(tiny_path, block_size=4, host_kv_bytes=1 << 20)
    text = prompt(1, 6)
    (whole,) = made.logits([part([*text, 7], 0, [0, 1])])
    made.submit(StepPlan((), swaps_out=(BlockSwap(0, 5), BlockSwap(1, 2)), copies=(BlockCopy(0, 1), BlockCopy(1, 0))))
    (copied,) = made.logits([part([7], 6, [1, 0])])
    made.logits([part(prompt(2, 8), 0, [0, 1])])
    made.submit(StepPlan((), swaps_in=(BlockSwap(8, 5), BlockSwap(3, 2)))).result()
    (back,) = made.logits([part([7], 6, [8, 3])])
    assert copied.equal(back)
    assert float((back - whole).norm() / whole.norm()) < FLOAT32_ERROR


def test_blocks_go_to_the_host_and_to_another_executor(tiny_path: Path) -> None:
    made, other = (executor(tiny_path, block_size=4, host_kv_bytes=1 << 20) for _ in range(2))
    text = prompt(1, 6)
    made.logits([part(text, 0, [0, 1])])
    (expected,) = made.logits([part([7], 6, [0, 1])])
    content, _ = made.read_blocks("tiny", [1, 0], swapped_out=False)
    made.submit(StepPlan((), swaps_out=(BlockSwap(1, 3), BlockSwap(0, 4))))
    assert made.read_blocks("tiny", [3, 4], swapped_out=True)[0] == content
    assert made.read_blocks("tiny", [], swapped_out=True)[0].nbytes == 0
    other.write_blocks("tiny", [6, 2], content)
    assert other.logits([part([7], 6, [2, 6])])[0].equal(expected)


@pytest.mark.parametrize("is_ahead", [True, False])
def test_steps_ahead_read_the_tokens_that_are_not_known_yet(tiny_path: Path, is_ahead: bool) -> None:
    payloads = [request(str(number), prompt(number, 2), 3, temperature=0.8, seed=number) for number in range(2)]
    check_answers(tiny_path, payloads, async_scheduling=is_ahead)


def test_two_models_share_the_pages_and_one_that_left_comes_back(tiny_path: Path, tmp_path: Path) -> None:
    other = tiny.write_gguf(tmp_path / "other.gguf", tiny.tensors_of(tiny.make_model(seed=1)))
    made = executor(tiny_path, max_models=2, kv_cache_bytes=8 << 20, host_models=1)
    made.load_model(spec(other, "other"))
    parts = [part(prompt(1, 4), 0, [0])]
    first, second = made.logits(parts, "tiny"), made.logits(parts, "other")
    assert not first.equal(second)
    made.unload_model("tiny")
    assert made.tiers == {"tiny": "host", "other": "device"}
    made.load_model(spec(tiny_path))
    assert made.logits(parts, "tiny").equal(first)


def test_logits_that_are_not_finite_end_that_sequence_only(tmp_path: Path) -> None:
    tensors = tiny.tensors_of(tiny.make_model())
    embedding = tensors["token_embd.weight"].copy()
    embedding[5] = float("nan")
    tensors["output.weight"] = tiny.tensors_of(tiny.make_model())["token_embd.weight"]
    tensors["token_embd.weight"] = embedding
    made = executor(tiny.write_gguf(tmp_path / "nan.gguf", tensors))
    bad = ScheduledSequence(1, (5,), 0, (0,), (Draw(1, GREEDY, 0, num_top=1),))
    good = ScheduledSequence(2, (6,), 0, (1,), (Draw(2, GREEDY, 0, num_top=1),))
    result = made.submit(StepPlan((bad, good))).result()
    assert dict(result.errors) == {1: NOT_FINITE}
    assert list(result.token_ids) == list(result.logprobs) == [2]


def test_draws_give_what_their_masks_allow(tiny_path: Path) -> None:
    made = executor(tiny_path)
    masks = [b"", mask_of([17]), mask_of([3, 4]), mask_of([tiny.VOCAB - 1])]
    parts = [
        ScheduledSequence(number, (5, 6), 0, (number,), (Draw(number, GREEDY, 0, num_top=1, allowed=allowed),))
        for number, allowed in enumerate(masks)
    ]
    result = made.submit(StepPlan(tuple(parts))).result()
    logits = made.logits(parts, "tiny")[0].tolist()
    expected = [max(range(tiny.VOCAB), key=logits.__getitem__), 17, 3 if logits[3] >= logits[4] else 4, tiny.VOCAB - 1]
    assert [result.token_ids[number] for number in range(4)] == expected
    assert {result.logprobs[number].top[0][0] for number in range(4)} == {expected[0]}, "the model's own distribution"


def test_what_it_cannot_run_is_refused_and_changes_nothing(tiny_path: Path) -> None:
    made = executor(tiny_path)
    with pytest.raises(ModelFileError, match="no int8 weights; set weights: bfloat16"):
        made.load_model(spec(tiny_path, "small", weights="int8"))
    assert made.tiers == {"tiny": "device"}
