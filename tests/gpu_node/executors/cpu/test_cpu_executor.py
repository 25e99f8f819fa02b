"""The CPU executor computes what the reference executor computes of the same rounded weights, however it is asked."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpu_node.engine.border.executor import Executor
from gpu_node.engine.border.plan import BlockCopy, Draw, ScheduledSequence, StepPlan
from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.executors.draws.not_finite import NOT_FINITE
from gpu_node.executors.model_check import load_problem
from gpu_node.executors.reference.executor import ReferenceExecutor
from gpu_node.graph.passes.draft import Pass
from gpu_node.graph.passes.fuse import fuse as fuse_operators
from gpu_node.graph.passes.offload.polls import insert_polls
from gpu_node.graph.passes.offload.split import even_plan, split_operators
from gpu_node.graph.program import Program
from gpu_node.kernels import cpu
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.nodes.nodes import NodeSpec
from shared.errors import OperatorError
from shared.files.model_file import ModelFileError
from shared.messages.requests.payload import Sampling
from tests.gpu_node import tiny
from tests.gpu_node.logits import logits_by
from tests.gpu_node.models.test_families_models import save

GREEDY = Sampling(max_tokens=8, temperature=0.0)
TOLERANCE = 0.05
"""Relative error of all logits. The weights are the same; each of some twenty products rounds its input to 8 bits
(2 ** -9 on average), and the tiny models' large random weights make an error grow from layer to layer."""

Make = Callable[..., CpuExecutor]


@pytest.fixture(scope="session")
def rounded_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights that bfloat16 holds without loss, so that both executors have the same."""
    tensors = {
        name: torch.from_numpy(np.array(values)).bfloat16().float().numpy()
        for name, values in tiny.tensors_of(tiny.make_model()).items()
    }
    return tiny.write_gguf(tmp_path_factory.mktemp("cpu") / "rounded.gguf", tensors)


@pytest.fixture
def make_empty() -> Iterator[Make]:
    """Executors without a model, closed at the end."""
    made: list[CpuExecutor] = []

    def make_empty(
        num_threads: int = 1, level: str = "", optimize: bool = True, passes: Sequence[Pass] = (), **options: Any
    ) -> CpuExecutor:
        made.append(
            CpuExecutor(EngineOptions(**OPTIONS | options), num_threads, level=level, optimize=optimize, passes=passes)
        )
        return made[-1]

    yield make_empty
    for executor in made:
        executor.close()


@pytest.fixture
def make(make_empty: Make, rounded_path: Path) -> Make:
    """Executors with the model loaded."""

    def make(num_threads: int = 1, path: Path = rounded_path, **options: Any) -> CpuExecutor:
        executor = make_empty(num_threads, **options)
        executor.load_model(spec(path))
        return executor

    return make


OPTIONS: dict[str, Any] = {"kv_cache_bytes": 1 << 20}


def spec(path: Path) -> ModelSpec:
    return ModelSpec(name="tiny", source=str(path), max_model_len=tiny.CONTEXT)


def part(
    token_ids: list[int], start: int, table: list[int], number: int = 0, sampling: Sampling = GREEDY
) -> ScheduledSequence:
    return ScheduledSequence(number, tuple(token_ids), start, tuple(table), (Draw(number, sampling, 0),))


def texts(num_texts: int, longest: int = 90) -> list[list[int]]:
    numbers = random.Random(3)
    return [[numbers.randrange(3, tiny.VOCAB) for _ in range(numbers.randint(1, longest))] for _ in range(num_texts)]


def mixed_logits(executor: CpuExecutor | ReferenceExecutor, block_size: int) -> torch.Tensor:
    """Two steps: prefills, then a decode, the rest of a prefill and a new prompt in one batch."""
    first, second, third = texts(3)
    num_blocks = -(-tiny.CONTEXT // block_size)
    tables = [list(range(number * num_blocks, (number + 1) * num_blocks))[::-1] for number in range(3)]
    with torch.inference_mode():
        before = logits_by(executor, [part(first, 0, tables[0]), part(second[:1], 0, tables[1], 1)])
        after = logits_by(
            executor,
            [
                part([5], len(first), tables[0]),
                part([*second[1:], 7], 1, tables[1], 1),
                part(third, 0, tables[2], 2),
            ],
        )
    return torch.cat([before, after])


def run(executor: Executor, options: dict[str, int], payloads: list[Any], path: Path) -> list[list[int]]:
    engine = Engine(executor, EngineOptions(**OPTIONS | options))
    engine.load_model(spec(path))
    return tiny.run(engine, payloads)


def requests(num_requests: int, num_tokens: int, longest: int = 60) -> list[Any]:
    return [tiny.request(str(number), text, num_tokens) for number, text in enumerate(texts(num_requests, longest))]


@pytest.mark.parametrize("level", cpu.LEVELS)
@pytest.mark.parametrize("block_size", [1, 5, 16])
def test_logits_of_a_mixed_batch_are_those_of_the_reference(
    make: Make, rounded_path: Path, block_size: int, level: str
) -> None:
    if cpu.level(level) is None:
        pytest.skip(f"this machine has no {level}")
    reference = ReferenceExecutor(EngineOptions(block_size=block_size, **OPTIONS))
    reference.load_model(spec(rounded_path))
    expected = mixed_logits(reference, block_size)
    ours = mixed_logits(make(block_size=block_size, level=level), block_size)
    assert float((ours - expected).norm() / expected.norm()) < TOLERANCE


@pytest.mark.parametrize("level", cpu.LEVELS)
def test_logits_are_the_same_bits_for_all_threads_blocks_and_optimized_programs(make: Make, level: str) -> None:
    if cpu.level(level) is None:
        pytest.skip(f"this machine has no {level}")
    expected = mixed_logits(make(level=level, block_size=16), 16)
    ways = [(1, 16, False), (2, 16, True), (3, 4, False), (2, 1, True), (1, 48, True)]
    for num_threads, block_size, optimize in ways:
        ours = mixed_logits(make(num_threads, level=level, block_size=block_size, optimize=optimize), block_size)
        assert ours.equal(expected), (num_threads, block_size, optimize)


@pytest.mark.parametrize("optimize", [True, False])
def test_chunks_that_draw_nothing_write_what_later_draws_read(make: Make, optimize: bool) -> None:
    executor = make(2, block_size=4, optimize=optimize)
    text = texts(1)[0]
    table = list(range(32))
    (whole,) = logits_by(executor, [part(text, 0, table)])
    silent = [replace(part(text[start : start + 7], start, table), draws=()) for start in range(0, len(text) - 1, 7)]
    for chunk in silent:
        assert logits_by(executor, [chunk]).shape == (0, tiny.VOCAB)
    end = len(text) - 1
    assert logits_by(executor, [part(text[end:], end, table)])[0].equal(whole)
    # drawing rows stand anywhere in the batch, beside those that draw nothing
    other = [replace(part([9] * 5, 0, [32 + 2 * number, 33 + 2 * number]), draws=()) for number in range(2)]
    assert logits_by(executor, [other[0], part(text, 0, table), other[1]])[0].equal(whole)


def test_logits_are_the_same_bits_alone_in_a_batch_and_in_chunks(make: Make) -> None:
    executor = make(2, block_size=4)
    prompts = texts(8)[:6]
    tables = [list(range(number * 32, (number + 1) * 32)) for number in range(6)]
    together = logits_by(executor, [part(text, 0, table) for text, table in zip(prompts[:2], tables[:2], strict=True)])
    for text, table, row in zip(prompts, tables, together, strict=False):
        assert logits_by(executor, [part(text, 0, table)])[0].equal(row)
        for start in range(0, len(text), 7):
            (chunked,) = logits_by(executor, [part(text[start : start + 7], start, table)])
        assert chunked.equal(row)
    decodes = [part([9], len(text), table) for text, table in zip(prompts[:2], tables[:2], strict=True)]
    both = logits_by(executor, decodes)
    assert [logits_by(executor, [decode])[0].equal(row) for decode, row in zip(decodes, both, strict=True)] == [
        True
    ] * 2


@pytest.mark.parametrize(
    "options",
    [
        {"block_size": 1},
        {"block_size": 4, "step_tokens": 17},
        {"step_tokens": 1, "max_num_seqs": 3},
        {"block_size": 5, "step_tokens": 16, "max_num_seqs": 2},
    ],
    ids=str,
)
def test_greedy_tokens_do_not_depend_on_blocks_chunks_and_batch(
    make_empty: Make, rounded_path: Path, options: dict[str, int]
) -> None:
    expected = run(make_empty(), {}, requests(6, 12), rounded_path)
    assert run(make_empty(2, **options), options, requests(6, 12), rounded_path) == expected


@pytest.mark.parametrize("num_parts", [2, 3])
def test_greedy_tokens_do_not_depend_on_split_operators_and_polls(
    make_empty: Make, rounded_path: Path, num_parts: int
) -> None:
    def split(program: Program) -> Program:
        return split_operators(program, even_plan(program, num_parts))

    options = {"block_size": 4, "step_tokens": 17}
    parts = make_empty(2, passes=(split, insert_polls), **options)
    assert run(parts, options, requests(6, 12), rounded_path) == run(make_empty(), {}, requests(6, 12), rounded_path)
    reference = ReferenceExecutor(EngineOptions(**OPTIONS | options), passes=(fuse_operators, split))
    plain = ReferenceExecutor(EngineOptions(**OPTIONS))
    assert run(reference, options, requests(6, 12), rounded_path) == run(plain, {}, requests(6, 12), rounded_path)


def test_greedy_tokens_are_those_of_the_reference(make_empty: Make, rounded_path: Path) -> None:
    """Until the first near-tie; from there on, the texts differ and so does all that follows."""
    ours = run(make_empty(2), {}, requests(8, 16), rounded_path)
    expected = run(ReferenceExecutor(EngineOptions(**OPTIONS)), {}, requests(8, 16), rounded_path)
    reference = ReferenceExecutor(EngineOptions(**OPTIONS))
    reference.load_model(spec(rounded_path))
    table = list(range(8))
    num_equal = 0
    for text, mine, theirs in zip(texts(8, 60), ours, expected, strict=True):
        same = next((i for i, pair in enumerate(zip(mine, theirs, strict=True)) if pair[0] != pair[1]), len(mine))
        num_equal += same == len(mine)
        if same < len(mine):
            with torch.inference_mode():
                (logits,) = logits_by(reference, [part([*text, *mine[:same]], 0, table)])
            gap = float(logits[theirs[same]] - logits[mine[same]])
            assert gap < TOLERANCE * float(logits.std()) * 4, f"not a near-tie: {gap}"
    assert num_equal >= 5


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_greedy_tokens_do_not_depend_on_preemption_and_prefix_hits(
    make_empty: Make, rounded_path: Path, preemption: str
) -> None:
    options = {"block_size": 4, "max_num_seqs": 96, "preemption": preemption, "host_kv_bytes": 1 << 20}
    executor = make_empty(2, **options)
    engine = Engine(executor, EngineOptions(**OPTIONS | options))
    engine.load_model(spec(rounded_path))
    tiny.run(engine, [tiny.request(f"short-{number}", [number], 1) for number in range(64)])
    common = list(range(20, 40))
    prompts = [[*common, *text] for text in texts(96, 4)]
    # 1 MiB holds 8,192 tokens in bfloat16: they do not all fit, but the engine has seen only short requests
    outputs = tiny.run(engine, [tiny.request(str(number), text, 100) for number, text in enumerate(prompts)])
    assert engine.num_preemptions > 0
    alone = [tiny.request(str(n), text, 100) for n, text in enumerate(prompts[-4:])]
    assert outputs[-4:] == run(make_empty(), {}, alone, rounded_path)


def test_a_forked_sequence_goes_on_in_a_copy_of_its_block(make: Make) -> None:
    executor = make(block_size=4)
    executor.submit(StepPlan((part([5, 6, 7], 0, [0]),)))
    # block 0 is copied and at once overwritten by another sequence
    outcome = executor.submit(StepPlan((part([8], 3, [1], 0), part([9, 10], 0, [0], 1)), (BlockCopy(0, 1),))).result()
    whole = executor.submit(StepPlan((part([5, 6, 7, 8], 0, [2], 0), part([9, 10], 0, [3], 1)))).result()
    assert outcome.token_ids == whole.token_ids


def test_a_sampled_request_draws_the_same_alone_and_in_a_batch(make_empty: Make, rounded_path: Path) -> None:
    payloads = [
        tiny.request(str(number), text, 10, temperature=0.9 * (number % 2), seed=number, top_k=40)
        for number, text in enumerate(texts(5))
    ]
    options = {"block_size": 3, "step_tokens": 9}
    together = run(make_empty(2, **options), options, payloads, rounded_path)
    assert together == [run(make_empty(), {}, [payload], rounded_path)[0] for payload in payloads]


def test_an_embedding_that_is_not_tied_has_a_head_of_its_own(make: Make, tmp_path: Path) -> None:
    path = tiny.write_gguf(tmp_path / "untied.gguf", tiny.tensors_of(tiny.make_model(seed=5, tied=False), tied=False))
    reference = ReferenceExecutor(EngineOptions(**OPTIONS))
    reference.load_model(spec(path))
    expected = mixed_logits(reference, 16)
    assert float((mixed_logits(make(path=path), 16) - expected).norm() / expected.norm()) < TOLERANCE


def test_submit_returns_before_the_work_is_done_and_steps_run_in_order(make: Make) -> None:
    executor = make(2, step_tokens=tiny.CONTEXT * 8)
    table = list(range(8))
    long = StepPlan(tuple(part([7] * (tiny.CONTEXT - 1), 0, [8 * n + b for b in table], n) for n in range(8)))
    steps = [executor.submit(long) for _ in range(20)]
    assert not steps[-1].is_done()
    # each step reads what the one before it wrote
    chain = [executor.submit(StepPlan((part([5 + n], n, [64]),))) for n in range(4)]
    last = chain[-1].result()
    assert all(running.is_done() for running in [*steps, *chain])
    (whole,) = executor.submit(StepPlan((part([5, 6, 7, 8], 0, [65]),))).result().token_ids.values()
    assert last.token_ids == {0: whole}


def test_logits_that_are_not_finite_end_that_sequence_only(make: Make, tmp_path: Path) -> None:
    tensors = {name: np.array(values) for name, values in tiny.tensors_of(tiny.make_model()).items()}
    tensors["blk.0.attn_norm.weight"][:] = np.inf
    broken = make(path=tiny.write_gguf(tmp_path / "broken.gguf", tensors))
    outcome = broken.submit(StepPlan((part([5], 0, [0], 3),))).result()
    assert (outcome.token_ids, outcome.errors) == ({}, {3: NOT_FINITE})


def test_a_failed_load_changes_nothing(make: Make, tmp_path: Path) -> None:
    executor = make()
    plan = StepPlan((part([5, 6, 7], 0, [0]),))
    before = logits_by(executor, plan.sequences)
    with pytest.raises(ModelFileError, match="none"):
        executor.load_model(ModelSpec(name="other", source=str(tmp_path / "none.gguf"), max_model_len=64))
    assert logits_by(executor, plan.sequences).equal(before)


def test_a_model_that_goes_leaves_its_place_to_another(make: Make, rounded_path: Path, tmp_path: Path) -> None:
    other = tiny.write_gguf(tmp_path / "other.gguf", tiny.tensors_of(tiny.make_model(seed=9)))
    executor = make()
    plan = StepPlan((part([5, 6, 7], 0, [0]),))
    before = logits_by(executor, plan.sequences)
    executor.unload_model("tiny")
    model = executor.load_model(spec(other))
    assert model.block_bytes == 16 * tiny.BLOCK_TOKEN_BYTES // 2
    assert model.num_blocks == (1 << 20) // model.block_bytes
    assert logits_by(executor, plan.sequences).equal(logits_by(make(path=other), plan.sequences))
    executor.unload_model("tiny")
    executor.load_model(spec(rounded_path))
    assert logits_by(executor, plan.sequences).equal(before)


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("gpt2", {"n_embd": 33, "n_head": 3}, "no kernel for heads of 11 numbers; it takes even ones of at most 512"),
        ("llama", {"head_dim": 514}, "no kernel for heads of 514 numbers"),
        (
            "llama",
            {"hidden_size": 98, "num_attention_heads": 49, "num_key_value_heads": 1},
            "no kernel for 49 heads that share one of keys and values; it takes 48 at most",
        ),
    ],
)
def test_heads_that_the_device_has_no_kernel_for_are_refused_and_end_no_engine(
    tmp_path: Path, name: str, changes: dict[str, Any], words: str
) -> None:
    save(name, tmp_path, **changes)
    options = EngineOptions(kv_cache_bytes=1 << 24)
    spec = ModelSpec(name="odd", source=str(tmp_path), max_model_len=16)
    assert words in load_problem(spec, NodeSpec(name="a", executor="cpu"), options, 1 << 40)
    with closing(CpuExecutor(options, num_threads=1)) as executor, pytest.raises(ModelFileError, match=words):
        executor.load_model(spec)


@pytest.mark.parametrize(
    "memory", [{"kv_cache_bytes": 1 << 38}, {"kv_cache_bytes": 1 << 62}, {"host_kv_bytes": 1 << 50}]
)
def test_memory_for_kv_that_there_cannot_be_is_told_to_the_operator(memory: dict[str, Any]) -> None:
    with pytest.raises(OperatorError, match=r"no \d+ bytes for KV: .*; lower engine.kv_cache_bytes"):
        CpuExecutor(EngineOptions(**memory), num_threads=1)
