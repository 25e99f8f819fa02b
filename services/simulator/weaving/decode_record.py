"""What is measured of a node while it decodes."""

from __future__ import annotations

from collections.abc import Iterable

from services.simulator.fast.sequence import FastSequence
from services.simulator.weaving.decode_books import DecodeBooks
from services.simulator.weaving.operator_times import DecodeStep


class DecodeRecord:
    """Sums over steps and requests since it was last cleared."""

    def __init__(self) -> None:
        self._admitted_s: dict[str, float] = {}
        self.clear()

    def clear(self) -> None:
        """Begin to measure."""
        self.num_steps = self.num_ended = self.num_tokens = 0
        self.steps_s = 0.0
        self._decoding_s = 0.0
        self._num_decoded = 0
        self._batch_s = self._local_s = self._remote_s = self._remote_rows_s = 0.0

    def admitted(self, sequences: Iterable[FastSequence], now: float) -> None:
        """They decode from now on. Who was sent back began before."""
        for sequence in sequences:
            self._admitted_s.setdefault(sequence.payload.request_id, now)

    def stepped(self, shape: DecodeStep, books: DecodeBooks, start_s: float, end_s: float) -> None:
        """A step and the time until the next can begin."""
        duration_s = end_s - start_s
        self.num_steps += 1
        self.num_tokens += shape.num_rows
        self.steps_s += duration_s
        self._batch_s += duration_s * shape.num_rows
        self._remote_rows_s += duration_s * shape.num_remote
        self._local_s += duration_s * books.local.used_share
        self._remote_s += duration_s * books.remote.used_share

    def ended(self, sequences: Iterable[FastSequence], now: float) -> None:
        """They have all their tokens."""
        for sequence in sequences:
            self.num_ended += 1
            self._decoding_s += now - self._admitted_s.pop(sequence.payload.request_id)
            self._num_decoded += sequence.end_len - sequence.num_prompt_tokens - 1

    @property
    def step_s(self) -> float:
        """Mean of all steps."""
        return self.steps_s / self.num_steps if self.num_steps else 0.0

    @property
    def tpot_s(self) -> float:
        """From admission to the end, a token, over all tokens behind the first ones."""
        return self._decoding_s / self._num_decoded if self._num_decoded else 0.0

    @property
    def batch(self) -> float:
        """Sequences of a step, over the time that steps took."""
        return self._batch_s / self.steps_s if self.steps_s else 0.0

    @property
    def remote_share(self) -> float:
        """Of these, those whose keys and values are on the receiver."""
        return self._remote_rows_s / self._batch_s if self._batch_s else 0.0

    @property
    def kv_share(self) -> float:
        """Of the blocks of its own pool, those used."""
        return self._local_s / self.steps_s if self.steps_s else 0.0

    @property
    def remote_kv_share(self) -> float:
        """Of the blocks of its pool on the receiver."""
        return self._remote_s / self.steps_s if self.steps_s else 0.0
