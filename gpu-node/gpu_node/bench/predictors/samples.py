"""What is measured for predictors: prompts alone, chunks beside decodes, blocks that go out and come back."""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import median

from gpu_node.bench.predictors.cost_sample import CostKind, CostSample
from gpu_node.bench.step_log import LoggedStep, LoggingExecutor
from gpu_node.engine.border.executor import BlocksStayError, Executor
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.engine import Engine
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.requests.payload import Payload, Sampling

TOKENS, HELD_OUT_TOKENS = (8, 16, 32, 64, 128, 192, 256, 384, 512, 768, 1024), (24, 48, 96, 160, 320, 640, 896)
BLOCKS, HELD_OUT_BLOCKS = (1, 2, 4, 8, 16, 32, 64), (3, 6, 12, 24, 48)
BATCHES, HELD_OUT_BATCHES = (2, 4), (3,)
BATCH_TOKENS = (16, 64, 128)
"""Of each of several prompts together."""
NUM_REPEATS = 3
NUM_MOVES = 30
"""Of each number of blocks: a move takes a millisecond, and what disturbs one as long."""
NUM_DECODES, NUM_DECODE_STEPS = 4, 8
"""Sequences beside a chunk, and the steps in which they tell what a step takes without it."""
DECODE_TOKENS = 16


class CostBench:
    """An engine with one model, whose steps are written down."""

    def __init__(self, executor: Executor, options: EngineOptions, spec: ModelSpec) -> None:
        self._log = LoggingExecutor(executor)
        self._engine = Engine(self._log, options)
        self.model: LoadedModel = self._engine.load_model(spec)
        self._options = options
        self._numbers = random.Random(0)  # noqa: S311 - the same prompts on every machine
        self._num_added = 0

    def samples(self, say: Callable[[str], None]) -> list[CostSample]:
        """All sizes that the model and its memory take."""
        room_tokens = self.model.num_blocks * self.model.block_size // 2 - NUM_DECODES * 4 * DECODE_TOKENS
        room_tokens = min(room_tokens, self.model.max_model_len - 1)
        sizes = [(size, False) for size in TOKENS] + [(size, True) for size in HELD_OUT_TOKENS]
        found: list[CostSample] = []
        say("prompts alone")
        self._prompt_s(TOKENS[0])
        found += [_sample("prompt", size, held, self._prompt_s) for size, held in sizes if size <= room_tokens]
        found += self._batches(room_tokens)
        if self._options.max_num_seqs > NUM_DECODES and self._options.step_tokens > NUM_DECODES:
            say("chunks beside decodes")
            found += [_sample("chunk", size, held, self._chunk_s) for size, held in sizes if size <= room_tokens]
        say("moves of blocks")
        return found + self._moves()

    def _batches(self, room_tokens: int) -> list[CostSample]:
        """Prompts together, as far as they run at once."""
        found = []
        for batch, is_held_out in [(one, False) for one in BATCHES] + [(one, True) for one in HELD_OUT_BATCHES]:
            for size in BATCH_TOKENS:
                if batch <= self._options.max_num_seqs and batch * size <= room_tokens:
                    seconds = [self._prompt_s(size, batch) for _ in range(NUM_REPEATS)]
                    found.append(sample_of("prompt", size, is_held_out, seconds, batch))
        return found

    def _prompt_s(self, num_tokens: int, batch: int = 1) -> float:
        """All steps of so many prompts, to the first token of each."""
        self._log.steps.clear()
        for _ in range(batch):
            self._add(num_tokens, 1)
        self._run()
        return sum(step.duration_s for step in self._log.steps)

    def _chunk_s(self, num_tokens: int) -> float:
        """What a prompt adds to the steps in which it is computed, beside sequences that decode."""
        num_chunks = -(-num_tokens // max(1, self._options.step_tokens - NUM_DECODES))
        for _ in range(NUM_DECODES):
            self._add(DECODE_TOKENS, NUM_DECODE_STEPS + 2 * num_chunks + DECODE_TOKENS)
        self._log.steps.clear()
        while sum(step.is_decode for step in self._log.steps) < NUM_DECODE_STEPS:
            self._engine.step(0.0)
        without_s = median(step.duration_s for step in self._log.steps if step.is_decode)
        self._log.steps.clear()
        name = self._add(num_tokens, 1)
        while not any(chunk.request_id == name for chunk in self._engine.step(0.0)):
            pass
        added_s = sum(max(0.0, step.duration_s - without_s) for step in self._log.steps if not step.is_decode)
        self._engine.reset()
        self._run()
        return added_s

    def _moves(self) -> list[CostSample]:
        found: list[CostSample] = []
        sizes = [(size, False) for size in BLOCKS] + [(size, True) for size in HELD_OUT_BLOCKS]
        for size, is_held_out in sorted(sizes, reverse=True):  # the first of all touches pages for the first time
            if size > self.model.num_blocks:
                continue
            out_s: list[float] = []
            in_s: list[float] = []
            for _ in range(NUM_MOVES):
                try:
                    content, duration_s = self._log.read_blocks(self.model.name, range(size), swapped_out=False)
                except BlocksStayError:
                    return []
                out_s.append(duration_s)
                in_s.append(self._log.write_blocks(self.model.name, range(size), content))
            found.append(sample_of("move_out", size, is_held_out, out_s))
            found.append(sample_of("move_in", size, is_held_out, in_s))
        return found

    def _add(self, num_prompt_tokens: int, num_output_tokens: int) -> str:
        """Random tokens, so that no cached prefix helps."""
        self._num_added += 1
        prompt = [self._numbers.randrange(self.model.vocab_size) for _ in range(num_prompt_tokens)]
        sampling = Sampling(max_tokens=num_output_tokens, temperature=0.0, ignore_eos=True)
        refused = self._engine.add(Payload(str(self._num_added), 0, "bench", self.model.name, prompt, sampling))
        assert not refused, refused
        return str(self._num_added)

    def _run(self) -> list[LoggedStep]:
        while self._engine.has_work:
            self._engine.step(0.0)
        return self._log.steps


def _sample(kind: CostKind, size: int, is_held_out: bool, measure: Callable[[int], float]) -> CostSample:
    return sample_of(kind, size, is_held_out, [measure(size) for _ in range(NUM_REPEATS)])


def sample_of(kind: CostKind, size: int, is_held_out: bool, measured_s: list[float], batch: int = 1) -> CostSample:
    """What the measurements of one size come to."""
    middle = median(measured_s)
    spread = median(abs(one / middle - 1) for one in measured_s) if middle > 0 else 0.0
    return CostSample(kind, size, middle, spread, is_held_out, batch)
