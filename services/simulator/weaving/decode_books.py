"""Sequences that decode on a node, each wholly in one pool of KV blocks, and those that wait for room.

As in Weaver (ATC'25, §4.3, §5): prompts are computed elsewhere; where a sequence lies is settled when it comes, by a
fixed ratio, and stays so to its end. The paper draws; here the ratio is kept at all times, which takes chance out of
what is compared. Where that pool is full, the other one takes it. The first that came is the first
that is admitted; where a pool overflows, its newest sequence goes back, and what it had is sent again later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from services.simulator.fast.decode_batch import DecodeBatch
from services.simulator.fast.sequence import FastSequence
from services.simulator.weaving.operator_times import DecodeStep

BLOCK_TOKENS = 16
SPARE_SHARE = 0.01
"""Of a pool's blocks, what is left free when a sequence is admitted: vLLM's watermark."""


class KvPool:
    """Blocks of one device that sequences of one model may have."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.num_free = num_blocks
        self.batch = DecodeBatch(BLOCK_TOKENS)
        self._num_spare = int(SPARE_SHARE * num_blocks)

    @property
    def used_share(self) -> float:
        """Of its blocks."""
        return 1 - self.num_free / self.num_blocks if self.num_blocks else 0.0

    def has_room(self, sequence: FastSequence) -> bool:
        """Whether a sequence that is not here can join."""
        return _num_blocks(sequence.offset) + self._num_spare < self.num_free

    def join(self, sequence: FastSequence) -> None:
        """There is room."""
        self.num_free -= _num_blocks(sequence.offset)
        self.batch.join(sequence)

    def _leave(self, sequence: FastSequence) -> None:
        self.batch.leave(sequence)
        self.num_free += _num_blocks(sequence.offset)

    def make_room(self) -> list[FastSequence]:
        """Let the next step have its blocks; who had to go for that, the newest first."""
        gone = []
        while self.batch.num_new_blocks(1) > self.num_free:
            newest = max(self.batch, key=lambda one: one.rank)
            self._leave(newest)
            gone.append(newest)
        self.num_free -= self.batch.num_new_blocks(1)
        return gone

    def step(self) -> list[FastSequence]:
        """Each has one token more; who is at its end."""
        ended = self.batch.advance(1)
        for sequence in ended:
            self._leave(sequence)
        return ended


def _num_blocks(num_known_tokens: int) -> int:
    """Of a sequence whose last known token is not computed yet."""
    return -(-(num_known_tokens - 1) // BLOCK_TOKENS)


class DecodeBooks:
    """Of one model on one node: a pool of its own, and perhaps one on a receiver."""

    def __init__(self, num_blocks: int, *, num_remote_blocks: int = 0, ratio: float = 0.0) -> None:
        """``ratio``: of the sequences that come, those that shall be remote."""
        self.local, self.remote = KvPool(num_blocks), KvPool(num_remote_blocks)
        self.waiting: deque[FastSequence] = deque()
        self.num_sent_back = 0
        self._ratio = ratio
        self._num_admitted = 0

    @property
    def num_running(self) -> int:
        """Sequences in both pools."""
        return len(self.local.batch) + len(self.remote.batch)

    def admit(self) -> list[FastSequence]:
        """Let in who waits, as long as there is room for the first."""
        admitted = []
        while self.waiting:
            pool = self._pool_for(self.waiting[0])
            if pool is None:
                break
            sequence = self.waiting.popleft()
            self._num_admitted += 1
            sequence.rank = self._num_admitted
            pool.join(sequence)
            admitted.append(sequence)
        return admitted

    def _pool_for(self, sequence: FastSequence) -> KvPool | None:
        is_remote = len(self.remote.batch) + 1 <= self._ratio * (self.num_running + 1)
        order = (self.remote, self.local) if is_remote else (self.local, self.remote)
        return next((pool for pool in order if pool.has_room(sequence)), None)

    def next_step(self) -> DecodeStep:
        """What the next step computes; it has its blocks then."""
        for pool in (self.local, self.remote):
            gone = pool.make_room()
            self.num_sent_back += len(gone)
            self.waiting.extendleft(gone)
        return self.shape

    @property
    def shape(self) -> DecodeStep:
        """Of the sequences that run."""
        local, remote = self.local.batch, self.remote.batch
        return DecodeStep(len(local), local.num_context_tokens, len(remote), remote.num_context_tokens)

    def step(self) -> Sequence[FastSequence]:
        """The step is over: who has ended with it."""
        return [*self.local.step(), *self.remote.step()]
