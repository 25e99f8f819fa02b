"""Several logs as one: by time, whatever a line is, and nothing that a terminal would obey."""

from __future__ import annotations

import json
from datetime import datetime

import click

from cli.cluster.logs.log_lines import as_json, merged, read_lines, shown

GATEWAY = [
    '{"code":"saturated","path":"/v1/completions","param":null,"event":"request_refused","level":"warning",'
    '"timestamp":"2026-11-23T09:12:33.123456Z","service":"gateway","instance":"gateway@host-1"}',
    '{"event":"broken","level":"error","timestamp":"2026-11-23T09:12:35Z","exception":"Traceback:\\nKeyError: 1"}',
]
NODE = ["starting up", '{"event":"ready","level":"info","timestamp":"2026-11-23T09:12:34Z"}', "terminate called", "!"]


def test_lines_are_merged_by_time_and_those_without_one_stay_behind_theirs() -> None:
    lines = merged([read_lines("gateway", GATEWAY), read_lines("node-0", NODE)])
    assert [click.unstyle(shown(line, 7)).rstrip() for line in lines] == [
        "                         node-0  starting up",
        "2026-11-23T09:12:33.123Z gateway warning  request_refused  code=saturated path=/v1/completions param=null",
        "2026-11-23T09:12:34.000Z node-0  info     ready",
        "2026-11-23T09:12:34.000Z node-0  terminate called",
        "2026-11-23T09:12:34.000Z node-0  !",
        "2026-11-23T09:12:35.000Z gateway error    broken\n"
        "2026-11-23T09:12:35.000Z gateway   Traceback:\n"
        "2026-11-23T09:12:35.000Z gateway   KeyError: 1",
    ]


def test_a_gateway_s_workers_are_told_apart() -> None:
    text = '{"event":"ready","level":"info","service":"gateway","instance":"gateway@vm-w1-172e3976","num":2}'
    [line] = read_lines("gateway", [text])
    assert click.unstyle(shown(line, 7)).endswith("ready  worker=1 num=2")


def test_redis_says_its_time_in_its_own_way() -> None:
    [line] = read_lines("redis", ["27:M 23 Nov 2026 09:12:33.250 * Ready to accept connections"])
    assert line.when == datetime(2026, 11, 23, 9, 12, 33, 250_000).astimezone(), "the machine's own"


def test_what_continues_a_log_begins_with_the_time_of_its_last_line() -> None:
    [first] = read_lines("node-0", NODE[1:2])
    [crash] = read_lines("node-0", ["Segmentation fault"], first.when)
    assert crash.when == first.when


def test_nothing_steers_the_terminal() -> None:
    line = json.dumps({"event": "x\x1b[2J", "level": "info", "path": "/\x1b]0;y\x07", "agent": "a b"})
    said, raw = (shown(one, 4) for one in read_lines("node", [line, "\x1b[31mred"]))
    assert "\x1b[2J" not in said
    assert said.endswith(r'path="/\u001b]0;y\u0007" agent="a b"')
    assert raw.endswith("\N{REPLACEMENT CHARACTER}[31mred")


def test_for_programs_a_line_is_an_object() -> None:
    [refused, broken] = read_lines("gateway", GATEWAY)
    assert json.loads(as_json(refused)) == {**json.loads(GATEWAY[0]), "process": "gateway"}
    [raw] = read_lines("node-0", ["Segmentation fault"], broken.when)
    assert json.loads(as_json(raw)) == {
        "process": "node-0",
        "text": "Segmentation fault",
        "timestamp": "2026-11-23T09:12:35+00:00",
    }


def test_json_that_is_no_line_of_ours_is_text() -> None:
    [number, odd] = read_lines("x", ["12", '{"timestamp": "soon", "event": "e"}'])
    assert (number.fields, odd.fields) == (None, {"timestamp": "soon", "event": "e"})
    assert odd.when == number.when
