"""A device whose KV memory holds token ids, and a language model of integers that reads its context from there.

What a row attends to is what lies in its block table, so a block that is shared, copied, swapped or reused wrongly
changes the tokens that come out. Steps run in the order in which they are submitted, as on every device.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from zlib import crc32

from gpu_node.engine.border.plan import DRAWN, Draw, Restore, ScheduledSequence, StepPlan, StepResult
from gpu_node.executors.draws.counter import mix
from shared.messages.requests.payload import Sampling
from shared.messages.requests.token_logprob import TokenLogprob
from tests.gpu_node.bookkeeping import EOS, STEP_S

WORDS = (0, 1, 2, 3, 4, 5, 6, EOS)
"""All tokens that the model ever continues a text with."""
LIKES_TO_REPEAT = 60
LOST = 1000
"""What comes of what is lost; no text has it."""


def logprobs_after(context: Sequence[int]) -> list[tuple[int, float]]:
    """All continuations of ``context`` with their logprobs, most likely first."""
    text = crc32(repr(list(context)).encode())
    weights = {word: 1 + mix(text * 1000 + word) % 100 for word in WORDS}
    for place in range(len(context) - 1):  # it likes to repeat itself
        if context[place] == context[-1] and context[place + 1] in weights:
            weights[context[place + 1]] += LIKES_TO_REPEAT
    total = sum(weights.values())
    ranked = sorted(weights.items(), key=lambda one: (-one[1], one[0]))
    return [(word, math.log(weight / total)) for word, weight in ranked]


def token_after(context: Sequence[int], sampling: Sampling, choice: int, position: int, allowed: bytes = b"") -> int:
    """The most likely continuation at temperature 0, else one that depends on all that a draw may depend on."""
    ranked = [one for one in logprobs_after(context) if not allowed or allowed[one[0] // 8] >> one[0] % 8 & 1]
    chance = mix(mix(sampling.seed * 100 + choice) + position)
    return ranked[0 if sampling.temperature == 0 else chance % len(ranked)][0]


class IntegerDevice:
    """Runs steps on ``num_blocks`` blocks of ``block_size`` tokens."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self._block_size = block_size
        self._blocks: list[list[int | None]] = [[None] * block_size for _ in range(num_blocks)]
        self._host: dict[int, list[int | None]] = {}
        self._receiver: dict[int, list[int | None]] = {}
        self._drawn: dict[int, int] = {}
        self.generation = 1
        """Of what lies on the receiver: steps of another one have lost it."""

    def lose_receiver(self) -> None:
        """Whatever lies on the receiver is lost."""
        self.generation += 1
        self._receiver.clear()

    def give_back(self, pages: Iterable[int], page_blocks: int) -> None:
        """Others write to these pages of the receiver."""
        for page in pages:
            for slot in range(page_blocks):
                self._receiver[page * page_blocks + slot] = [None] * self._block_size

    def read(self, blocks: Sequence[int], *, swapped_out: bool) -> list[list[int | None]]:
        """Copies of blocks, on the device or in host memory."""
        return [list(self._host[block] if swapped_out else self._blocks[block]) for block in blocks]

    def write(self, restore: Restore, image: Sequence[list[int | None]]) -> None:
        """What a plan restores of an image, ahead of its step."""
        for place, block in zip(restore.places, restore.blocks, strict=True):
            self._blocks[block] = list(image[place])

    def run(self, plan: StepPlan, masks: Mapping[int, bytes] | None = None) -> StepResult:
        """One step: swaps out, copies, swaps in, moves to the receiver and back, rows, copies out, draws.

        ``masks``: those that come late.
        """
        for swap in plan.swaps_out:
            self._host[swap.host_block] = list(self._blocks[swap.device_block])
        sources = [list(self._blocks[copy.source]) for copy in plan.copies]
        for copy, source in zip(plan.copies, sources, strict=True):
            self._blocks[copy.destination] = source
        for swap in plan.swaps_in:
            self._blocks[swap.device_block] = list(self._host[swap.host_block])
        is_lost = plan.generation != self.generation and plan.needs_receiver
        for move in () if is_lost else plan.sends:
            self._receiver[move.remote_block] = list(self._blocks[move.device_block])
        for move in plan.calls_back:
            found = self._receiver.get(move.remote_block, [])
            self._blocks[move.device_block] = [LOST] * self._block_size if is_lost else list(found)
        written: set[tuple[bool, int, int]] = set()
        for part in plan.sequences:
            if not (is_lost and part.is_remote):
                self._write(part, written)
        for copy_out in plan.copies_out:  # as late as they may be: nothing of the step has written there
            self._host[copy_out.host_block] = list(self._blocks[copy_out.device_block])
        drawn = {
            draw.sequence_id: (LOST, None) if is_lost and part.is_remote else self._draw(part, draw, masks or {})
            for part in plan.sequences
            for draw in part.draws
        }
        self._drawn |= {sequence_id: token for sequence_id, (token, _) in drawn.items()}
        return StepResult(
            token_ids={sequence_id: token for sequence_id, (token, _) in drawn.items()},
            duration_s=STEP_S,
            logprobs={sequence_id: logprob for sequence_id, (_, logprob) in drawn.items() if logprob is not None},
            is_remote_lost=is_lost,
        )

    def _block(self, part: ScheduledSequence, position: int) -> list[int | None]:
        number = part.block_table[position // self._block_size]
        if not part.is_remote:
            return self._blocks[number]
        return self._receiver.setdefault(number, [None] * self._block_size)

    def _write(self, part: ScheduledSequence, written: set[tuple[bool, int, int]]) -> None:
        for position, token in enumerate(part.token_ids, start=part.start):
            slot = position % self._block_size
            place = (part.is_remote, part.block_table[position // self._block_size], slot)
            assert place not in written, "two rows write to one place"
            written.add(place)
            self._block(part, position)[slot] = self._drawn[part.sequence_id] if token == DRAWN else token

    def _draw(self, part: ScheduledSequence, draw: Draw, masks: Mapping[int, bytes]) -> tuple[int, TokenLogprob | None]:
        context: list[int] = []
        num_guesses_behind = part.num_draft_tokens - draw.num_draft_tokens
        for position in range(part.start + len(part.token_ids) - num_guesses_behind):
            token = self._block(part, position)[position % self._block_size]
            assert token is not None, "a row reads what nobody has written"
            context.append(token)
        allowed = masks.get(draw.sequence_id, b"") if draw.is_mask_late else draw.allowed
        token = token_after(context, draw.sampling, draw.choice, draw.position, allowed)
        if draw.num_top is None:
            return token, None
        ranked = logprobs_after(context)
        return token, TokenLogprob(dict(ranked)[token], ranked[: draw.num_top])
