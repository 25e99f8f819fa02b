"""Which faults come when, and what some of them write."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from shared.messages.codec import UndecodableError, decode_entry
from tests.chaos.faults.catalogue import KINDS, schedule
from tests.chaos.faults.entries import bad_values
from tests.chaos.resp import encode
from tests.chaos.server import transaction_ends

NUM_DRAWN = 300


def names(seed: int, num_rounds: int) -> list[list[str]]:
    return [[kind.name for kind in kinds] for kinds in islice(schedule(Random(seed)), num_rounds)]


def test_each_kind_comes_once_and_alone_and_the_seed_says_in_which_order() -> None:
    first = names(1, len(KINDS))
    assert sorted(first) == sorted([name] for name in KINDS)
    assert names(1, len(KINDS)) == first != names(2, len(KINDS))


def test_two_at_a_time_are_of_two_kinds_and_one_at_most_is_done_to_redis_itself() -> None:
    pairs = [kinds for kinds in names(1, len(KINDS) + NUM_DRAWN)[len(KINDS) :] if len(kinds) == 2]
    assert NUM_DRAWN / 4 < len(pairs) < NUM_DRAWN / 2
    assert all(one != other for one, other in pairs)
    assert not any(KINDS[one].is_of_redis and KINDS[other].is_of_redis for one, other in pairs)


def test_only_the_named_faults_come() -> None:
    chosen = islice(schedule(Random(1), ["kill-redis"]), 3)
    assert [[kind.name for kind in kinds] for kinds in chosen] == [["kill-redis"]] * 3


@pytest.mark.parametrize("number", range(len(bad_values(Random(0)))))
def test_bad_entries_cannot_be_decoded(number: int) -> None:
    with pytest.raises(UndecodableError):
        decode_entry(
            {
                name.encode() if isinstance(name, str) else name: value
                for name, value in bad_values(Random(0))[number].items()
            }
        )


def test_a_log_is_cut_between_transactions_only() -> None:
    alone, begin, inside, end = encode(b"SET", b"a", b"1"), encode(b"MULTI"), encode(b"DEL", b"a"), encode(b"EXEC")
    log = alone + begin + inside + end + alone
    assert transaction_ends(log) == [len(alone), len(log) - len(alone), len(log)]
