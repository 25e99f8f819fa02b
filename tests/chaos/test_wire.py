"""RESP is cut into frames whatever the pieces, commands have the names of their points, a log becomes entries."""

from __future__ import annotations

import hashlib

import pytest

from shared.bus import scripts
from shared.messages.codec import encode as encode_message
from shared.messages.requests.requests import Enqueued, GatewayBeat
from tests.chaos.log_reader import read_log
from tests.chaos.points import Conversation
from tests.chaos.resp import FrameCutter, RespError, arguments, commands, encode

FRAMES = [
    b"+OK\r\n",
    b"$-1\r\n",
    b"$5\r\nhe\r\no\r\n",
    b":7\r\n",
    b"*2\r\n*1\r\n$1\r\na\r\n*-1\r\n",
    b"-FENCED lost\r\n",
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_frames_are_whole_whatever_the_pieces(size: int) -> None:
    data, cutter = b"".join(FRAMES), FrameCutter()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert [frame for piece in pieces for frame in cutter.feed(piece)] == FRAMES


def test_a_request_is_its_arguments() -> None:
    assert arguments(encode(b"XADD", b"key", b"*", b"m", b"\r\n")) == [b"XADD", b"key", b"*", b"m", b"\r\n"]


def test_what_is_no_resp_is_refused() -> None:
    with pytest.raises(RespError, match="no RESP"):
        list(FrameCutter().feed(b"?\r\n"))


def test_commands_of_a_log_end_where_it_was_cut() -> None:
    whole = encode(b"SET", b"a", b"1")
    assert list(commands(b"#TS:17\r\n" + whole + whole[:-3])) == [(len(whole) + 8, [b"SET", b"a", b"1"])]


def test_points_have_names() -> None:
    said = Conversation()
    sha = hashlib.sha1(scripts.COMMIT.encode()).hexdigest().encode()
    assert said.name([b"EVALSHA", sha, b"2", b"lease", b"state"]) == "commit"
    assert said.name([b"XADD", b"treadle:queue", b"*", b"m", b"x"]) == "beat"
    assert said.name([b"PING"]) == ""


@pytest.mark.parametrize(
    ("inside", "name"),
    [
        ([[b"SET", b"treadle:req:r", b"x"], [b"XADD", b"treadle:queue", b"*", b"m", b"x"]], "submit"),
        ([[b"DEL", b"treadle:req:r"], [b"XADD", b"treadle:queue", b"*", b"m", b"x"]], "cancel"),
        ([[b"XADD", b"treadle:tokens:g", b"NOMKSTREAM", b"*", b"m", b"x"]], "publish"),
        ([[b"XACK", b"treadle:group:g", b"nodes", b"1-0"]], "publish"),
    ],
)
def test_transactions_are_named_by_what_they_do(inside: list[list[bytes]], name: str) -> None:
    said = Conversation()
    names = [said.name(command) for command in [[b"MULTI"], *inside, [b"EXEC"]]]
    assert names == [""] * (len(inside) + 1) + [name]


@pytest.mark.parametrize(
    ("keys", "arguments", "name"),
    [
        ([b"treadle:req:r", b"treadle:queue"], [b"set", b"x", b"9", b"add", b"x", b"0"], "submit"),
        ([b"treadle:req:r", b"treadle:queue"], [b"delete", b"", b"0", b"add", b"x", b"0"], "cancel"),
        ([b"treadle:req:r"], [b"delete", b"", b"0"], "finish"),
        ([b"treadle:tokens:g", b"treadle:queue"], [b"add-existing", b"x", b"9", b"add", b"x", b"0"], "publish"),
        ([b"treadle:group:g"], [b"ack", b"1-0", b"nodes"], "publish"),
        ([b"treadle:scheduler", b"treadle:kv"], [b"add", b"x", b"9", b"add", b"x", b"9"], "beat"),
    ],
)
def test_writes_of_a_script_are_named_by_what_they_write(keys: list[bytes], arguments: list[bytes], name: str) -> None:
    sha = hashlib.sha1(scripts.WRITE.encode()).hexdigest().encode()
    assert Conversation().name([b"EVALSHA", sha, b"%d" % len(keys), *keys, *arguments]) == name


def test_a_log_is_read_as_entries() -> None:
    enqueued = encode_message(Enqueued(request_id="r", attempt=1, gateway="g"))
    log = [
        encode(b"MULTI"),
        encode(b"XADD", b"treadle:group:g", b"5-0", b"m", enqueued),
        encode(b"HSET", b"treadle:state:queue-manager", b"committed", b"4-0"),
        encode(b"EXEC"),
        encode(b"XADD", b"treadle:queue", b"NOMKSTREAM", b"MAXLEN", b"~", b"10", b"6-0", b"m", b"\xff"),
        encode(b"XADD", b"treadle:queue", b"7-0", b"m", encode_message(GatewayBeat(gateway="g"))),
    ]
    first, second, bad, beat = read_log(b"".join(log), [0, sum(map(len, log[:4]))])
    assert (first.key, first.entry_id, first.life, first.message["request_id"]) == ("treadle:group:g", "5-0", 0, "r")
    assert (second.verb, second.value, second.transaction) == ("HSET", "4-0", first.transaction)
    assert (bad.entry_id, bad.message, bad.life) == ("6-0", {}, 1)
    assert beat.message["type"] == "gatewaybeat"
    assert beat.transaction != bad.transaction
