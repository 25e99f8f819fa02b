"""Users who come back."""

from __future__ import annotations

from random import Random

from services.simulator.workloads.conversations import STAYS, ReturningUsers

USERS = ReturningUsers(num_users=6, num_turns=3, turns_per_s=0.5)


def test_a_turn_is_all_that_was_said_and_512_tokens_more() -> None:
    requests = USERS.draw("m", "interactive", Random(0))
    assert [one.arrival_s for one in requests] == sorted(one.arrival_s for one in requests)
    by_user: dict[int, list[tuple[int, ...]]] = {}
    for one in requests:
        assert one.prompt_tokens == 512 * len(one.hash_ids)
        by_user.setdefault(one.hash_ids[0], []).append(one.hash_ids)
    assert by_user == {
        3 * user: [tuple(range(3 * user, 3 * user + turn + 1)) for turn in range(3)] for user in range(6)
    }


def test_as_many_are_there_as_the_rate_says() -> None:
    """Two of six at a time, of whom each makes a turn in 4 s: 0.5 a second. Each is half through: two turns."""
    assert (USERS.between_s, USERS.active_tokens, STAYS) == (4.0, 2 * 2 * 512, 3)
