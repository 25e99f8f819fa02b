"""The rows: conversations without tiers, with host memory, with an SSD below it; and what the copies cost."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from gpu_node.bench.conversations.player import Player, TimedAnswer
from gpu_node.bench.conversations.workload import (
    ANSWER_TOKENS,
    LONE_ANSWER_TOKENS,
    LONE_PROMPT_TOKENS,
    Size,
    lone_prompt,
    message,
)
from gpu_node.bench.report import ConversationRow, CopyOutRow, HitRate, Ttft
from gpu_node.engine.measures.counts import Counts
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.engines.tiers import NO_TIERS, TierOptions
from shared.config.nodes.nodes import NodeSpec

HOST_PART = 4
"""Of ``host_ssd``: host memory has room for one conversation in so many."""
SPARE_SSD = 2
"""Times as much room on the SSD as all conversations take."""

PromptsAsked = Callable[[str, int], None]
"""Hears what is done now, and how many more prompt tokens were asked."""

Answers = list[list[TimedAnswer]]
"""By turn, then by user."""


class Conversations:
    """The workload on one node and model, with tiers of several sizes."""

    def __init__(
        self, node: NodeSpec, spec: ModelSpec, options: EngineOptions, size: Size, folder: Path, advance: PromptsAsked
    ) -> None:
        self._node, self._spec, self._size, self._folder = node, spec, size, folder
        self._advance = advance
        with Player(node, spec, options) as probe:
            self._block_bytes, self._vocab_size = probe.model.block_bytes, probe.model.vocab_size
        self._block_size = options.block_size
        self._options = replace(
            options,
            kv_cache_bytes=max(1 << 20, size.blocks(size.room_users, options.block_size) * self._block_bytes),
            max_num_seqs=size.room_users,
            host_kv_bytes=0,
            preemption="recompute",
            tiers=NO_TIERS,
        )
        self._plain: list[list[list[int]]] = []

    def tiers(self, row: str) -> TierOptions:
        """Those of a row."""
        all_bytes = self._size.blocks(self._size.num_users, self._block_size) * self._block_bytes
        match row:
            case "off":
                return NO_TIERS
            case "host":
                return TierOptions(host_bytes=all_bytes)
            case _:
                return TierOptions(
                    host_bytes=all_bytes // HOST_PART,
                    ssd_bytes=max(1 << 20, SPARE_SSD * all_bytes),
                    ssd_folder=str(self._folder / row),
                )

    def rows(self) -> Iterator[ConversationRow]:
        """Each as it is measured. The plain one comes first: its answers are those that all have to give."""
        for row in ("off", "host", "host_ssd"):
            yield self._row(row)
        yield self._cold()

    def _row(self, row: str) -> ConversationRow:
        last = self._size.num_turns - 1
        histories: list[list[int]] = [[] for _ in range(self._size.num_users)]
        with self._player(row) as player:
            started_s = time.perf_counter()
            answers = [self._turn(player, row, number, histories) for number in range(last)]
            copying_s = self._copy_folder(player, row)
            answers.append(self._turn(player, row, last, histories))
            return self._said(row, player.counts, answers, time.perf_counter() - started_s - copying_s)

    def _cold(self) -> ConversationRow:
        """The last turn, when the node has just started and only the SSD has what was said before."""
        last = self._size.num_turns - 1
        histories = [self._history(user, last) for user in range(self._size.num_users)]
        with self._player("ssd_cold") as player:
            player.settle()
            started_s = time.perf_counter()
            answers = [self._turn(player, "ssd_cold", last, histories)]
            return self._said("ssd_cold", player.counts, answers, time.perf_counter() - started_s)

    def _copy_folder(self, player: Player, row: str) -> float:
        """What the SSD has before the last turn is what a cold start finds; the seconds that it took to keep that."""
        started_s = time.perf_counter()
        if row == "host_ssd":
            player.settle()
            shutil.copytree(self._folder / "host_ssd", self._folder / "ssd_cold", ignore=shutil.ignore_patterns("lock"))
        return time.perf_counter() - started_s

    def _history(self, user: int, turn: int) -> list[int]:
        """What was said before a turn, with the answers that were given without tiers."""
        history: list[int] = []
        for number in range(turn):
            history += message(user, number, self._vocab_size) + self._plain[number][user]
        return history

    def _player(self, row: str) -> Player:
        return Player(self._node, self._spec, replace(self._options, tiers=self.tiers(row)))

    def _turn(self, player: Player, row: str, number: int, histories: list[list[int]]) -> list[TimedAnswer]:
        for user, history in enumerate(histories):
            history.extend(message(user, number, self._vocab_size))
        doing = f"{row}, turn {number + 1} of {self._size.num_turns}"
        answers = player.play(
            [list(history) for history in histories],
            ANSWER_TOKENS,
            self._size.room_users,
            lambda num_tokens: self._advance(doing, num_tokens),
        )
        for history, answer in zip(histories, answers, strict=True):
            history.extend(answer.tokens)
        return answers

    def _said(self, row: str, counts: Counts, answers: Answers, seconds: float) -> ConversationRow:
        tokens = [[answer.tokens for answer in turn] for turn in answers]
        self._plain = self._plain or tokens
        queried, cached = counts.first_queried_tokens, counts.first_cached_tokens
        kept = counts.kept
        on_device = cached - kept.host_tokens - kept.store_tokens
        later = answers if row == "ssd_cold" else answers[1:]
        return ConversationRow(
            row=row,
            prompt_tokens=queried,
            prefill_tokens=queried - cached,
            hit_rate=HitRate(*(part / queried for part in (on_device, kept.host_tokens, kept.store_tokens))),
            ttft_s=Ttft(_median_ttft(answers[:1]), _median_ttft(later)),
            seconds=seconds,
            tokens_equal=tokens == self._plain[-len(tokens) :],
            num_lost=kept.num_lost_blocks,
            num_unwritten=kept.num_unwritten,
        )

    def copy_out(self) -> list[CopyOutRow]:
        """Requests without a follow-up: the rows take turns, and each turn gives a ratio of throughputs."""
        names = ("off", "host", "host_ssd")
        seconds: dict[str, list[float]] = {name: [] for name in names}
        num_asked = 0
        with ExitStack() as resources:
            players = {name: resources.enter_context(self._lone_player(name)) for name in names}
            for repeat in range(self._size.num_repeats + 1):  # the first warms up
                prompts = [lone_prompt(num_asked + one, self._vocab_size) for one in range(self._size.num_lone)]
                num_asked += len(prompts)
                for name in _rotated(names, repeat):
                    took_s = self._lone_run(players[name], name, prompts)
                    if repeat:
                        seconds[name].append(took_s)
        return [CopyOutRow(name, seconds[name], _cost(seconds["off"], seconds[name])) for name in names]

    def _lone_player(self, row: str) -> Player:
        """Host memory is full behind the first run, as it is nearly always: new pages would cost the system's time."""
        tiers = self.tiers(row)
        num_blocks = self._size.num_lone * -(-(LONE_PROMPT_TOKENS + LONE_ANSWER_TOKENS) // self._block_size)
        if tiers.host_bytes:
            tiers = replace(tiers, host_bytes=num_blocks * self._block_bytes)
        if tiers.ssd_folder is not None:
            tiers = replace(tiers, ssd_folder=f"{tiers.ssd_folder}-lone")
        return Player(self._node, self._spec, replace(self._options, tiers=tiers))

    def _lone_run(self, player: Player, row: str, prompts: Sequence[list[int]]) -> float:
        started_s = time.perf_counter()
        player.play(
            prompts,
            LONE_ANSWER_TOKENS,
            self._size.room_users,
            lambda num_tokens: self._advance(f"{row}, nothing returns", num_tokens),
        )
        took_s = time.perf_counter() - started_s
        player.settle()  # what is written now is not to slow down the next row
        return took_s


def _median_ttft(turns: Answers) -> float:
    return statistics.median(answer.ttft_s for turn in turns for answer in turn)


def _cost(plain_s: Sequence[float], seconds: Sequence[float]) -> float:
    return 1 - statistics.median(without / taken for without, taken in zip(plain_s, seconds, strict=True))


def _rotated(names: Sequence[str], by: int) -> list[str]:
    start = by % len(names)
    return [*names[start:], *names[:start]]
