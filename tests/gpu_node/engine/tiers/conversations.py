"""Conversations that grow on a device with room for a few of them, for tests of tiers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gpu_node.engine.engine import Engine
from gpu_node.engine.tiers.disk import Disk
from gpu_node.engine.tiers.kv_store import KvStore
from gpu_node.engine.tiers.open_store import store_in_folder
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.engines.tiers import NO_TIERS, TierOptions
from shared.messages.requests.payload import Payload, Sampling
from tests.gpu_node import tiny
from tests.gpu_node.models.test_families_models import save

NUM_USERS, NUM_TURNS = 6, 4
MESSAGE_TOKENS, ANSWER_TOKENS = 7, 9
BLOCK_SIZE = 4
KV_BYTES = 1 << 20
"""The least that can be given; with the models made here, room for 170 tokens, or two conversations and a half."""
HOST_BYTES, SSD_BYTES = 4 << 20, 32 << 20
MAX_STEPS = 10_000


def make_model(path: Path, executor: str, inner_size: int = 64) -> Path:
    """With large keys and values; of another ``inner_size``, other weights whose blocks have the same layout."""
    num_layers = 3 if executor == "reference" else 6
    save("llama", path, num_hidden_layers=num_layers, num_key_value_heads=4, head_dim=64, intermediate_size=inner_size)
    return path


@dataclass
class Kept:
    """An engine and its store, if it has one."""

    engine: Engine
    store: KvStore | None
    model: str = "m"
    partition: str = ""
    now: float = 0.0
    histories: list[list[int]] = field(default_factory=lambda: [[] for _ in range(NUM_USERS)])

    def turn(self, number: int, *, settles: bool = False) -> list[list[int]]:
        """Every user says something and gets an answer, one after another; what each has heard.

        ``settles``: the store has written all of one before the next.
        """
        answers = []
        for user in range(NUM_USERS):
            answers.append(self.answer(user, number))
            if self.store is not None and settles:
                self.store.settle()
        return answers

    def answer(self, user: int, number: int) -> list[int]:
        numbers = random.Random(user * 100 + number)
        self.histories[user] += [numbers.randrange(3, tiny.VOCAB) for _ in range(MESSAGE_TOKENS)]
        sampling = Sampling(max_tokens=ANSWER_TOKENS, temperature=0.0, ignore_eos=True)
        whose = f"{user}-{number}", 0, "g", self.model, list(self.histories[user]), sampling
        payload = Payload(*whose, partition=self.partition)
        assert self.engine.add(payload) == []
        heard: list[int] = []
        for _ in range(MAX_STEPS):
            if not self.engine.has_work:
                break
            self.now += 0.001
            for chunk in self.engine.step(self.now):
                assert not chunk.error
                heard += chunk.token_ids
            self.engine.check()
        assert len(heard) == ANSWER_TOKENS
        self.histories[user] += heard
        return heard

    def play(self, turns: range = range(NUM_TURNS), *, settles: bool = True) -> list[list[list[int]]]:
        """All turns. ``settles``: the store has written all of an answer before the next."""
        return [self.turn(number, settles=settles) for number in turns]


@contextmanager
def engine(
    path: Path, executor: str, tiers: TierOptions = NO_TIERS, disk: Disk | None = None, *, ahead: bool = True
) -> Iterator[Kept]:
    """An engine with the model at ``path``, and its store if ``tiers`` ask for one."""
    options = EngineOptions(block_size=BLOCK_SIZE, kv_cache_bytes=KV_BYTES, async_scheduling=ahead, tiers=tiers)
    if executor == "reference":
        with _kept(ReferenceExecutor(options), options, path, disk) as kept:
            yield kept
        return
    with closing(CpuExecutor(options, num_threads=1)) as cpu, _kept(cpu, options, path, disk) as kept:
        yield kept


@contextmanager
def _kept(
    executor: CpuExecutor | ReferenceExecutor, options: EngineOptions, path: Path, disk: Disk | None
) -> Iterator[Kept]:
    store = store_in_folder(options.tiers, "node", executor, disk) if options.tiers.ssd_bytes else None
    try:
        one = Engine(executor, options, store=store)
        one.load_model(ModelSpec(name="m", source=str(path), max_model_len=96))
        yield Kept(one, store)
    finally:
        if store is not None:
            store.close()


def host() -> TierOptions:
    return TierOptions(host_bytes=HOST_BYTES)


def host_ssd(folder: Path, host_bytes: int = HOST_BYTES) -> TierOptions:
    return TierOptions(host_bytes=host_bytes, ssd_bytes=SSD_BYTES, ssd_folder=str(folder))
