"""Where commands begin in an append-only file that a server wrote until it was killed."""

from __future__ import annotations

import pytest

from tests.redis.log_file import command_starts

FIRST, SECOND = b"*2\r\n$4\r\nPING\r\n$2\r\n*\n\r\n", b"*1\r\n$0\r\n\r\n"


def test_commands_begin_behind_each_other() -> None:
    assert command_starts(FIRST + SECOND, 0) == [0, 22, 32]
    assert command_starts(FIRST + SECOND, 22) == [22, 32]
    assert command_starts(b"", 0) == [0]


@pytest.mark.parametrize("num_bytes", range(1, 10))
def test_half_a_command_at_the_end_is_none(num_bytes: int) -> None:
    assert command_starts(FIRST + SECOND[:num_bytes], 0) == [0, 22]
