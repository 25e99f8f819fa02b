"""Users who talk to a model in turns: each prompt is all that was said so far, and a new message."""

from __future__ import annotations

import random
from dataclasses import dataclass

FIRST_MESSAGE_TOKENS = 28
MESSAGE_TOKENS = 12
ANSWER_TOKENS = 4
LONE_PROMPT_TOKENS, LONE_ANSWER_TOKENS = 128, 16
"""Of requests without a follow-up: long enough to fill blocks while they decode, too."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much of it there is."""

    num_users: int
    num_turns: int
    room_users: int
    """Whole conversations that the device has room for; so many run at a time."""
    num_lone: int
    """Requests of a run in which nothing returns."""
    num_repeats: int
    """Of that run."""

    def blocks(self, num_users: int, block_size: int) -> int:
        """That so many whole conversations take."""
        return num_users * -(-history_tokens(self.num_turns) // block_size)


FULL = Size(num_users=200, num_turns=10, room_users=20, num_lone=32, num_repeats=3)
QUICK = Size(num_users=10, num_turns=10, room_users=1, num_lone=4, num_repeats=3)


def history_tokens(num_turns: int) -> int:
    """Of a conversation after so many turns."""
    return FIRST_MESSAGE_TOKENS + (num_turns - 1) * MESSAGE_TOKENS + num_turns * ANSWER_TOKENS


def message(user: int, turn: int, vocab_size: int) -> list[int]:
    """What a user says in a turn, from 0 on: the same on every machine."""
    numbers = random.Random(user * 1000 + turn)  # noqa: S311 - no secret
    num_tokens = MESSAGE_TOKENS if turn else FIRST_MESSAGE_TOKENS
    return [numbers.randrange(vocab_size) for _ in range(num_tokens)]


def lone_prompt(number: int, vocab_size: int) -> list[int]:
    """The prompt of a request without a follow-up; no two begin alike."""
    numbers = random.Random(-1 - number)  # noqa: S311 - no secret
    return [numbers.randrange(vocab_size) for _ in range(LONE_PROMPT_TOKENS)]
