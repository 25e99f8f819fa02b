"""One step on its way: drafted within a budget of tokens, in flight, and committed part by part.

A part is taken out again when its request is preempted, aborted or over: from the draft, then it is not computed; or
from a step in flight, then what it brings is dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from collections.abc import Sequence as AnySequence
from dataclasses import dataclass
from typing import NamedTuple

from gpu_node.engine.border.plan import (
    BlockCopy,
    BlockMove,
    BlockSwap,
    Restore,
    ScheduledSequence,
    StepPlan,
    StepResult,
)
from gpu_node.engine.requests.sequence import EngineRequest, Sequence


class Guess(NamedTuple):
    """A token that is guessed to follow."""

    token_id: int
    allowed: bytes = b""
    """What may be drawn behind it, as in `Draw.allowed`."""


@dataclass(slots=True, eq=False)
class StepPart:
    """What a step does for one sequence."""

    request: EngineRequest
    sequence: Sequence
    end: int
    """Tokens of the sequence that are computed when the step has run."""
    draws: bool
    scheduled: ScheduledSequence | None
    """None where the leader computes for a sequence that forks it in this step."""
    copies: tuple[BlockCopy, ...] = ()
    draft_token_ids: tuple[int, ...] = ()
    """Guesses behind ``end``, which are computed too."""
    draft_draw_ids: tuple[int, ...] = ()
    """`Draw.sequence_id` of the draw behind each guess, and of no other draw."""

    def drawn_ids(self, result: StepResult) -> list[int]:
        """Of its draws, those behind tokens that are the sequence's: behind ``end``, and behind each guess that holds.

        A guess holds that is what is drawn in its place, behind others that do (Leviathan et al., ICML'23, §2.3, for
        draws that hang on nothing else: then what is kept is what would have been drawn, not only distributed so).
        """
        found = [self.sequence.sequence_id]
        for guess, draw_id in zip(self.draft_token_ids, self.draft_draw_ids, strict=True):
            if result.token_ids.get(found[-1]) != guess:
                break
            found.append(draw_id)
        return found


class Step:
    """The parts of one step, in the order in which they were scheduled; in its plan, single rows come last."""

    def __init__(self, budget_tokens: int) -> None:
        self.num_left_tokens = budget_tokens
        self.draft_tokens: Mapping[int, AnySequence[Guess]] = {}
        """Guesses that sequences may have in it."""
        self.plan: StepPlan | None = None
        self.swaps_out: list[BlockSwap] = []
        self.swaps_in: list[BlockSwap] = []
        self.copies_out: list[BlockSwap] = []
        self.num_brought_in = 0  # of ``swaps_in``: blocks of prefixes, not of swapped-out requests
        self.sends: list[BlockMove] = []
        self.calls_back: list[BlockMove] = []
        self.called_back: list[EngineRequest] = []
        self.restores: list[Restore] = []
        self._parts: dict[int, StepPart] = {}

    @property
    def has_rows(self) -> bool:
        """Whether anything is computed in it."""
        return bool(self._parts)

    def part(self, sequence_id: int) -> StepPart | None:
        """What the step does for a sequence, or None."""
        return self._parts.get(sequence_id)

    def masks(self) -> dict[int, bytes]:
        """What constrained sequences may draw in it, by sequence; those that have ended or left are left out."""
        drawing = [part.sequence for part in self._parts.values() if part.draws]
        return {one.sequence_id: one.matcher.allowed for one in drawing if one.matcher is not None}

    def add(self, part: StepPart) -> None:
        """Take a part in, behind those that are in already."""
        assert self.plan is None
        assert part.sequence.sequence_id not in self._parts
        if part.scheduled is not None:
            assert 0 < len(part.scheduled.token_ids) <= self.num_left_tokens
            self.num_left_tokens -= len(part.scheduled.token_ids)
        self._parts[part.sequence.sequence_id] = part

    def discard(self, sequence_id: int) -> None:
        """Take a part out, if it is in. In a draft, its tokens go back to the budget and its copies are not made."""
        part = self._parts.pop(sequence_id, None)
        if part is not None and part.scheduled is not None:
            self.num_left_tokens += len(part.scheduled.token_ids)

    def cancel_call_back(self, request: EngineRequest, blocks: Collection[int]) -> None:
        """A request that is called back in this draft gives way again: its ``blocks`` of the device may be others'."""
        if self.plan is None and request in self.called_back:
            self.called_back.remove(request)
            self.calls_back = [move for move in self.calls_back if move.device_block not in blocks]

    def seal(self, generation: int) -> StepPlan:
        """The plan of the step as it stands, for that generation of a link; from now on it is in flight."""
        assert self.plan is None
        parts = [part for part in self._parts.values() if part.scheduled is not None]
        sequences = [part.scheduled for part in parts if part.scheduled is not None]
        self.plan = StepPlan(
            sequences=tuple(sorted(sequences, key=lambda one: (one.is_remote, len(one.token_ids) == 1))),
            copies=tuple(copy for part in parts for copy in part.copies),
            swaps_out=tuple(self.swaps_out),
            swaps_in=tuple(self.swaps_in),
            sends=tuple(self.sends),
            calls_back=tuple(self.calls_back),
            generation=generation,
            restores=tuple(self.restores),
            copies_out=tuple(self.copies_out),
        )
        return self.plan

    def remote_requests(self) -> list[EngineRequest]:
        """Those that are computed at a receiver in it, and have not left since."""
        return [part.request for part in self._parts.values() if part.scheduled and part.scheduled.is_remote]

    def parts(self) -> list[StepPart]:
        """A copy: taking in one part may discard others."""
        return list(self._parts.values())
