"""Structured output through the engine: each output is of its language, however steps are planned and interrupted."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpu_node.engine.border.executor import Executor
from gpu_node.engine.engine import Engine
from gpu_node.engine.requests.image import Kept
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.executors.cpu.step import RunningStep
from gpu_node.executors.reference.executor import ReferenceExecutor
from gpu_node.grammars.compiler import GrammarCompiler
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.requests.payload import Constraint, Output, Payload, Sampling
from shared.vocabulary.gguf_vocabulary import TokenType
from tests.gateway.tiny import ALPHABET, write_model
from tests.gpu_node import tiny
from tests.gpu_node.workload import answers, mixed_requests, prompt, request

NUMBER = Constraint("regex", "[0-9]{3,5}")
LIST = Constraint("json_schema", '{"type": "array", "items": {"enum": ["A", "B"]}, "minItems": 1, "maxItems": 4}')
LIST_PATTERN = re.compile(r'\[\s*"[AB]"(\s*,\s*"[AB]"){0,3}\s*\]')
CODE = Constraint("grammar", 'start: (LETTER "-")+ DIGIT\nLETTER: /[A-Z]/\nDIGIT: /[0-9]/')
KIB = 1 << 10


@pytest.fixture(scope="module")
def grammars(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrammarCompiler]:
    """Tokens of the tiny model are ASCII characters, and one that ends."""
    kinds = [TokenType.CONTROL if token == tiny.EOS else TokenType.NORMAL for token in range(tiny.VOCAB)]
    tokens: dict[str, Any] = {"tokens": ALPHABET[: tiny.VOCAB], "kinds": kinds, "merges": ["A B"]}
    path = write_model(tmp_path_factory.mktemp("tokens") / "ascii.gguf", eos=tiny.EOS, bos=1, template=None, **tokens)
    compiler = GrammarCompiler({"tiny": path}.__getitem__)
    yield compiler
    compiler.close()


Kind = Callable[[EngineOptions], Executor]


class CountingExecutor(CpuExecutor):
    """Knows how often masks came late."""

    num_given = 0

    def give_masks(self, step: RunningStep, masks: Mapping[int, bytes]) -> None:
        self.num_given += 1
        super().give_masks(step, masks)


def make_engine(path: Path, grammars: GrammarCompiler | None, kind: Kind = ReferenceExecutor, **options: Any) -> Engine:
    given: dict[str, Any] = {"block_size": 4, "kv_cache_bytes": 1 << 20, "max_num_seqs": 32, "step_tokens": 64}
    chosen = EngineOptions(**given | options)
    engine = Engine(kind(chosen), chosen, grammars=grammars)
    engine.load_model(ModelSpec(name="tiny", source=str(path), max_model_len=tiny.CONTEXT))
    return engine


def text(token_ids: list[int]) -> str:
    return bytes(token for token in token_ids if token != tiny.EOS).decode()


def mixed() -> list[Payload]:
    """Constrained requests among others."""
    kinds = [NUMBER, LIST, CODE]
    held = [
        request(f"held-{number}", prompt(number, 5 + number), 40, seed=number, temperature=number % 3, constraint=kind)
        for number, kind in enumerate(kinds * 3)
    ]
    return [one for pair in zip(mixed_requests(len(held), 3), held, strict=True) for one in pair]


def test_outputs_are_of_their_languages(tiny_path: Path, grammars: GrammarCompiler) -> None:
    found = answers(make_engine(tiny_path, grammars), mixed())
    held = {name: (text(token_ids), reason) for (name, _), (token_ids, reason) in found.items() if name[:5] == "held-"}
    assert len(held) == 9
    for name, (written, reason) in held.items():
        pattern = [re.compile("[0-9]{3,5}"), LIST_PATTERN, re.compile("([A-Z]-)+[0-9]")][int(name[5:]) % 3]
        if reason == "stop":
            assert pattern.fullmatch(written), (name, written)
        else:
            assert len(written) == 40, "it came to its limit within the language"
    assert sum(reason == "stop" for _, reason in held.values()) >= 6


@pytest.mark.parametrize(
    "options",
    [
        {"async_scheduling": False},
        {"step_tokens": 32, "max_num_seqs": 32},
        {"kv_cache_bytes": 40 * KIB, "admission": "greedy", "preemption": "recompute"},
        {"kv_cache_bytes": 40 * KIB, "admission": "greedy", "preemption": "swap", "host_kv_bytes": 1 << 20},
        {"chunked_prefill": False},
    ],
    ids=str,
)
def test_each_request_gets_the_same_however_steps_are_planned(
    tiny_path: Path, grammars: GrammarCompiler, options: dict[str, Any]
) -> None:
    expected = answers(make_engine(tiny_path, grammars), mixed())
    engine = make_engine(tiny_path, grammars, **options)
    assert answers(engine, mixed()) == expected
    assert (engine.num_preemptions > 0) == ("kv_cache_bytes" in options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"step_tokens": 32},
        {"kv_cache_bytes": 20 * KIB, "admission": "greedy", "preemption": "recompute"},
        {"kv_cache_bytes": 20 * KIB, "admission": "greedy", "preemption": "swap", "host_kv_bytes": 1 << 20},
    ],
    ids=str,
)
def test_masks_that_come_late_change_nothing(
    tiny_path: Path, grammars: GrammarCompiler, options: dict[str, Any]
) -> None:
    """The device is asked for a token before it is known what it may be."""
    executors: list[CountingExecutor] = []

    def kind(chosen: EngineOptions) -> Executor:
        executors.append(CountingExecutor(chosen, num_threads=2))
        return executors[-1]

    plain = make_engine(tiny_path, grammars, kind, **options, async_scheduling=False)
    expected = answers(plain, mixed())
    ahead = make_engine(tiny_path, grammars, kind, **options)
    assert answers(ahead, mixed()) == expected
    assert executors[0].num_given == 0
    assert executors[1].num_given > 10
    assert (ahead.num_preemptions > 0) == ("kv_cache_bytes" in options)
    for executor in executors:
        executor.close()


def test_each_choice_is_held_by_itself(tiny_path: Path, grammars: GrammarCompiler) -> None:
    asked: dict[str, Any] = {"seed": 5, "constraint": NUMBER, "temperature": 1.0}
    together = answers(make_engine(tiny_path, grammars), [request("a", prompt(1, 11), num_choices=3, **asked)])
    assert len({tuple(tokens) for tokens, _ in together.values()}) == 3
    for choice in range(3):
        ended = [Output([], "" if choice == other else "stop") for other in range(3)]
        sampling = Sampling(max_tokens=8, num_choices=3, **asked)
        alone = Payload("a", 0, "g", "tiny", prompt(1, 11), sampling, ended)
        assert answers(make_engine(tiny_path, grammars), [alone]) == {("a", choice): together["a", choice]}


def test_the_best_candidate_is_of_the_language(tiny_path: Path, grammars: GrammarCompiler) -> None:
    one = request("a", prompt(1, 11), num_candidates=4, constraint=NUMBER, seed=3)
    ((tokens, reason),) = answers(make_engine(tiny_path, grammars), [one]).values()
    assert re.fullmatch("[0-9]{3,5}", text(tokens))
    assert reason == "stop"


@pytest.mark.parametrize("num_tokens", [0, 1, 2])
def test_an_output_goes_on_where_an_earlier_attempt_left_it(
    tiny_path: Path, grammars: GrammarCompiler, num_tokens: int
) -> None:
    ((whole, reason),) = answers(
        make_engine(tiny_path, grammars), [request("a", prompt(2, 9), 12, seed=7, constraint=NUMBER)]
    ).values()
    sampling = Sampling(max_tokens=12, seed=7, constraint=NUMBER)
    outputs = [Output(whole[:num_tokens])]
    resumed = Payload("a", 1, "g", "tiny", prompt(2, 9), sampling, outputs)
    assert answers(make_engine(tiny_path, grammars), [resumed]) == {("a", 0): (whole[num_tokens:], reason)}


def ends(engine: Engine, payload: Payload) -> list[tuple[str, str]]:
    """Reasons and errors of what ends without a token."""
    chunks = engine.add(payload)
    for more in tiny.steps(engine):
        chunks += more
    assert [token for chunk in chunks for token in chunk.token_ids] == []
    return [(chunk.finish_reason, chunk.error) for chunk in chunks]


def test_an_output_that_was_whole_already_ends_at_once(tiny_path: Path, grammars: GrammarCompiler) -> None:
    sampling = Sampling(max_tokens=12, constraint=Constraint("choice", '["AB", "CD"]'))
    whole = Payload("a", 1, "g", "tiny", prompt(2, 9), sampling, [Output([ord("A"), ord("B")])])
    assert ends(make_engine(tiny_path, grammars), whole) == [("stop", "")]


def test_output_of_another_language_is_an_error(tiny_path: Path, grammars: GrammarCompiler) -> None:
    """Of an older node that did not know what a constraint is, say."""
    sampling = Sampling(max_tokens=12, constraint=NUMBER)
    wrong = Payload("a", 1, "g", "tiny", prompt(2, 9), sampling, [Output([ord("A")])])
    ((reason, error),) = ends(make_engine(tiny_path, grammars), wrong)
    assert reason == "error"
    assert error.startswith("structured output: ")


def test_a_whole_output_ends_even_if_ends_are_ignored(tiny_path: Path, grammars: GrammarCompiler) -> None:
    one = request("a", prompt(1, 3), 12, ignore_eos=True, constraint=Constraint("regex", "A{4}"))
    assert answers(make_engine(tiny_path, grammars), [one]) == {("a", 0): ([ord("A")] * 4, "stop")}


def test_logprobs_are_the_models_own(tiny_path: Path, grammars: GrammarCompiler) -> None:
    """A forced token is as unlikely as the model finds it."""
    engine = make_engine(tiny_path, grammars)
    engine.add(request("a", prompt(1, 3), 4, num_logprobs=2, constraint=Constraint("regex", "A{4}")))
    chunks = [chunk for chunks in tiny.steps(engine) for chunk in chunks]
    assert [chunk.token_ids for chunk in chunks] == [[ord("A")]] * 4
    assert all(chunk.logprobs[0].logprob < chunk.logprobs[0].top[1][1] < 0 for chunk in chunks)


@pytest.mark.parametrize(
    ("constraint", "given", "why"),
    [
        (Constraint("regex", "a("), {}, "unclosed group"),
        (NUMBER, {"is_beam": True, "num_candidates": 2}, "beam search has no structured output"),
    ],
)
def test_what_cannot_be_is_refused(
    tiny_path: Path, grammars: GrammarCompiler, constraint: Constraint, given: dict[str, Any], why: str
) -> None:
    one = request("a", prompt(1, 3), constraint=constraint, **given)
    ((reason, error),) = ends(make_engine(tiny_path, grammars), one)
    assert reason == "refused"
    assert why in error


def test_an_engine_without_grammars_says_so(tiny_path: Path) -> None:
    engine = make_engine(tiny_path, None)
    (chunk,) = engine.add(request("a", prompt(1, 3), constraint=NUMBER))
    assert (chunk.finish_reason, chunk.error) == (
        "refused",
        "this engine compiles no grammars, so it has no structured output",
    )


@pytest.mark.parametrize("is_handed_over", [True, False])
def test_who_is_evicted_goes_on_from_its_image(
    tiny_path: Path, grammars: GrammarCompiler, is_handed_over: bool
) -> None:
    asked = request("a", prompt(2, 9), 12, seed=7, constraint=NUMBER)
    expected = answers(make_engine(tiny_path, grammars), [asked])
    engine = make_engine(tiny_path, grammars, evicted_kv_bytes=1 << 20)
    assert engine.add(asked) == []
    before: list[int] = []
    while len(before) < 2:
        before += [token for chunk in engine.step(0.0) for token in chunk.token_ids]
    last, kept = engine.evict(["a"])
    before += [token for chunk in last for token in chunk.token_ids]
    assert kept == [Kept("a", 10)]
    image = engine.hand_over(["a"])[0].data if is_handed_over else None
    assert engine.add(asked, image) == []
    assert engine.counts.num_recomputed == 0
    rest = [chunk for chunks in tiny.steps(engine) for chunk in chunks]
    assert {("a", 0): ([*before, *(token for chunk in rest for token in chunk.token_ids)], "stop")} == expected


class Slow:
    """Files that are not there yet."""

    def __init__(self, grammars: GrammarCompiler) -> None:
        self._arrived = threading.Event()
        self._grammars = grammars
        self.compiler = GrammarCompiler(self._path_of)

    def _path_of(self, name: str) -> Path:
        assert self._arrived.wait(60)
        return self._grammars._path_of(name)

    def arrive(self) -> None:
        self._arrived.set()


@pytest.fixture
def slow(grammars: GrammarCompiler) -> Iterator[Slow]:
    one = Slow(grammars)
    yield one
    one.arrive()
    one.compiler.close()


def test_who_waits_for_a_grammar_holds_up_nobody(tiny_path: Path, slow: Slow) -> None:
    engine = make_engine(tiny_path, slow.compiler)
    assert engine.add(request("held", prompt(1, 3), constraint=NUMBER)) == []
    assert engine.add(request("free", prompt(1, 3), 4)) == []
    assert engine.stats().num_waiting == 2
    ended: list[str] = []
    while ended != ["free"]:
        ended += [chunk.request_id for chunk in engine.step(0.0) if chunk.is_last]
    assert engine.has_work
    assert engine.step(0.0) == []
    slow.arrive()
    assert [chunk.finish_reason for chunks in tiny.steps(engine) for chunk in chunks if chunk.is_last] == ["stop"]


def test_who_waits_for_a_grammar_can_leave(tiny_path: Path, slow: Slow) -> None:
    engine = make_engine(tiny_path, slow.compiler)
    leaves: list[Callable[[], None]] = [lambda: engine.abort(["a"]), engine.reset]
    for leave in leaves:
        engine.add(request("a", prompt(1, 3), constraint=NUMBER))
        assert engine.has_work
        leave()
        assert not engine.has_work
    engine.add(request("a", prompt(1, 3), constraint=NUMBER))
    assert engine.hand_over(["a"]) == []
    assert engine.evict(["a", "unknown"]) == ([], [Kept("a", 0)])
    assert not engine.has_work


def test_the_newest_attempt_waits_for_its_grammar(tiny_path: Path, slow: Slow) -> None:
    engine = make_engine(tiny_path, slow.compiler)
    for attempt in (1, 2, 2, 0):
        sampling = Sampling(max_tokens=8, constraint=NUMBER)
        assert engine.add(Payload("a", attempt, "g", "tiny", prompt(1, 3), sampling)) == []
    assert engine.stats().num_waiting == 1
    slow.arrive()
    assert {chunk.attempt for chunks in tiny.steps(engine) for chunk in chunks} == {2}
